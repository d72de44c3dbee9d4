#include "cli/bench/peer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/interrupt.hpp"
#include "hub/child.hpp"

namespace adze::cli::bench {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A member that must be a number.
std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}
// Tokens per second.
std::optional<double> rate_of(const Json& object, const char* key) {
  const auto value = number(object, key);
  if (!value || !(*value > 0) || *value > 1e12) return std::nullopt;
  return value;
}
std::optional<std::int64_t> count(const Json& object, const char* key) {
  const auto value = number(object, key);
  if (!value || *value < 0 || *value > 1e9) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

tl::unexpected<Error> not_understood(std::string_view program, std::string_view why) {
  return fail(ErrorCode::io, fmt::format("{} printed something else than its results: {}", program, why),
              "--peer takes llama.cpp's llama-bench.");
}

// The last line that a program wrote before it failed.
std::string last_words(const hub::ChildOutcome& outcome) {
  std::string_view text = outcome.errors.empty() ? outcome.output : outcome.errors;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const auto line = text.rfind('\n');
  if (text.empty()) return "it said nothing";
  return std::string(line == text.npos ? text : text.substr(line + 1));
}

Result<std::string> output_of(const std::vector<std::string>& words) {
  ADZE_TRY(hub::ChildOutcome outcome, hub::run_child(words, {}, [] { return !interrupted(); }));
  if (outcome.exit_status == 0) return std::move(outcome.output);
  return fail(ErrorCode::io, fmt::format("'{}' ended with status {}: {}", fmt::join(words, " "), outcome.exit_status,
                                         last_words(outcome)));
}

bool is_batched(const Case& what) { return what.batch > 1; }

}  // namespace

Result<Peer> find_peer(const fs::path& program) {
  std::error_code ignored;
  if (!fs::is_regular_file(program, ignored)) {
    return fail(ErrorCode::not_found, fmt::format("there is no program '{}'", program.string()),
                "--peer takes the path of llama.cpp's llama-bench.");
  }
  // A name without a folder would be looked for in PATH.
  Peer peer{.program = fs::absolute(program), .batched_program = {}};
  const fs::path batched = peer.program.parent_path() / "llama-batched-bench";
  if (fs::is_regular_file(batched, ignored)) peer.batched_program = batched;
  return peer;
}

Result<std::vector<PeerSample>> parse_llama_bench(std::string_view output, std::string* version) {
  const Json tests = Json::parse(output, nullptr, false);
  if (!tests.is_array()) return not_understood("llama-bench", "no JSON array");
  std::vector<PeerSample> samples;
  for (const Json& test : tests) {
    const auto prompt = count(test, "n_prompt"), generated = count(test, "n_gen"), depth = count(test, "n_depth");
    const auto rate = rate_of(test, "avg_ts");
    if (!prompt || !generated || !depth || !rate) return not_understood("llama-bench", "a test without its rate");
    const bool is_prompt = *prompt > 0;
    samples.push_back({.what = {.kind = is_prompt ? Case::Kind::prompt : Case::Kind::generate,
                                .tokens = is_prompt ? *prompt : *generated,
                                .depth = *depth},
                       .tokens_per_second = *rate});
    const auto commit = test.find("build_commit");
    if (version != nullptr && commit != test.end() && commit->is_string())
      *version = fmt::format("llama.cpp {}", commit->get<std::string>());
  }
  return samples;
}

Result<std::vector<PeerSample>> parse_batched_bench(std::string_view output) {
  std::vector<PeerSample> samples;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    const std::string_view line = output.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with('{')) continue;  // blank lines
    const Json test = Json::parse(line, nullptr, false);
    const auto prompt = count(test, "pp"), generated = count(test, "tg"), texts = count(test, "pl");
    const auto rate = rate_of(test, "speed_tg");
    if (!prompt || !generated || !texts || !rate)
      return not_understood("llama-batched-bench", "a line without its rate");
    samples.push_back({.what = {.kind = Case::Kind::generate,
                                .tokens = *generated,
                                .depth = *prompt,
                                .batch = static_cast<int>(*texts)},
                       .tokens_per_second = *rate});
  }
  if (samples.empty()) return not_understood("llama-batched-bench", "no line of JSON");
  return samples;
}

Result<PeerRound> run_peer(const Peer& peer, const fs::path& model, int threads, std::span<const Case> cases) {
  PeerRound round{.version = "llama.cpp", .rates = {}};  // until it says which
  std::vector<PeerSample> samples;
  const auto collect = [&](Result<std::vector<PeerSample>> more) -> Status {
    if (!more) return tl::unexpected(std::move(more.error()));
    samples.insert(samples.end(), more->begin(), more->end());
    return {};
  };
  // What one call measures together: prompts; generation of so many tokens at each depth; batches of one depth.
  std::vector<std::int64_t> prompts;
  std::set<std::pair<std::int64_t, std::int64_t>> single, batched;  // tokens and depth
  for (const Case& what : cases) {
    if (what.kind == Case::Kind::prompt) {
      prompts.push_back(what.tokens);
    } else {
      (is_batched(what) ? batched : single).emplace(what.tokens, what.depth);
    }
  }
  const auto bench = [&](std::vector<std::string> words) -> Status {
    std::vector<std::string> all{
        peer.program.string(), "-m", model.string(), "-t", std::to_string(threads), "-r", "1", "-o", "json"};
    all.insert(all.end(), words.begin(), words.end());
    ADZE_TRY(const std::string output, output_of(all));
    return collect(parse_llama_bench(output, &round.version));
  };
  if (!prompts.empty()) ADZE_TRY_STATUS(bench({"-p", fmt::format("{}", fmt::join(prompts, ",")), "-n", "0"}));
  for (const auto& [tokens, depth] : single)
    ADZE_TRY_STATUS(bench({"-p", "0", "-n", std::to_string(tokens), "-d", std::to_string(depth)}));
  for (const auto& [tokens, depth] : batched) {
    if (peer.batched_program.empty()) continue;
    std::vector<int> texts;
    for (const Case& what : cases) {
      if (is_batched(what) && what.tokens == tokens && what.depth == depth) texts.push_back(what.batch);
    }
    const std::int64_t prompt = std::max<std::int64_t>(depth, 1);
    const std::int64_t positions = (prompt + tokens) * *std::ranges::max_element(texts);
    const std::string words = std::to_string(threads);
    ADZE_TRY(const std::string output,
             output_of({peer.batched_program.string(), "-m", model.string(), "-t", words, "-tb", words, "-c",
                        std::to_string(positions), "-npp", std::to_string(prompt), "-ntg", std::to_string(tokens),
                        "-npl", fmt::format("{}", fmt::join(texts, ",")), "--output-format", "jsonl"}));
    auto more = parse_batched_bench(output);
    if (more) {
      for (PeerSample& sample : *more) sample.what.depth = depth;  // it has no texts of nothing
    }
    ADZE_TRY_STATUS(collect(std::move(more)));
  }
  for (const Case& what : cases) {
    const auto found = std::ranges::find(samples, what, &PeerSample::what);
    if (found != samples.end()) {
      round.rates.emplace_back(found->tokens_per_second);
    } else if (is_batched(what) && peer.batched_program.empty()) {
      round.rates.emplace_back();
    } else {
      return fail(ErrorCode::io, fmt::format("'{}' did not measure '{}'", peer.program.string(), what.label()),
                  "Leave the case out, or use a newer llama.cpp.");
    }
  }
  return round;
}

}  // namespace adze::cli::bench
