#include "cli/contract/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/limits.hpp"
#include "cli/json_writer.hpp"

namespace adze::cli::contract {
namespace {

// metrics.json last: a folder without it is no result.
constexpr const char* kFiles[] = {"contract.json", "environment.json", "routes.json",
                                  "trace.json",    "summary.md",       "metrics.json"};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

void write_figures(JsonWriter& json, const Figures& figures) {
  json.key("figures")
      .begin_object()
      .field("first_token_ms", figures.first_token_ms)
      .field("prompt_rate", figures.prompt_rate)
      .field("decode_rate", figures.decode_rate)
      .field("plain_rate", figures.plain_rate)
      .end_object();
}

std::string metrics_json(const Contract& contract, const Outcome& outcome, const Environment& environment) {
  const RunRecord& run = outcome.measured.front();
  JsonWriter json;
  json.begin_object()
      .field("contract", contract.id)
      .field("contract_digest", to_hex(contract.digest))
      .field("model", environment.model)
      .field("processor", environment.processor)
      .field("correct", outcome.correct())
      .list("faults", outcome.faults)
      .list("missed_speeds", outcome.slow)
      .field("gain", outcome.gain)
      .field("gain_counts", outcome.gain_counts)
      .field("steps", run.engine.steps)
      .field("prefix_lookups", run.engine.prefix_lookups)
      .field("prefix_hits", run.engine.prefix_hits)
      .field("reused_tokens", run.engine.reused_tokens)
      .field("evicted_pages", run.engine.evicted_pages);
  write_figures(json, figures_of(outcome));
  json.key("requests").begin_array();
  for (std::size_t i = 0; i < run.answers.size(); ++i) {
    const AnswerRecord& answer = run.answers[i];
    const Statistics& s = answer.generation.statistics;
    json.begin_object()
        .field("name", answer.name)
        .field("finish", finish_reason_name(answer.generation.finish))
        .field("prompt_tokens", answer.prompt_length)
        .field("reused_tokens", s.reused_tokens)
        .field("not_reused", s.not_reused)
        .field("generated_tokens", s.generated_tokens)
        .field("drafted_tokens", s.drafted_tokens)
        .field("accepted_tokens", s.accepted_tokens)
        .field("forwards", s.forwards)
        .field("preemptions", s.preemptions)
        .field("first_token_ms", s.first_token_seconds * 1e3)
        .field("prompt_rate", s.prompt_rate())
        .field("decode_rate", s.generate_rate())
        .field("plain_rate", outcome.plain.front().answers[i].generation.statistics.generate_rate())
        .field("loops", static_cast<bool>(outcome.loops[i]))
        .end_object();
  }
  return json.end_array().end_object().take();
}

std::string environment_json(const Environment& e) {
  return JsonWriter()
      .begin_object()
      .field("adze", e.version)
      .field("processor", e.processor)
      .field("kernel_set", e.kernel_set)
      .field("threads", e.threads)
      .field("model", e.model)
      .field("model_file", e.model_file)
      .field("file_bytes", e.file_bytes)
      .field("numeric_class", e.numeric_class)
      .field("plan_route", e.route)
      .field("speculation", e.speculation)
      .end_object()
      .take();
}

std::string routes_json(const Outcome& outcome) {
  JsonWriter json;
  json.begin_object().key("measured").begin_array();
  for (const RunRecord& run : outcome.measured) json.value(run.engine.route);
  return json.end_array().field("reference", outcome.reference.engine.route).end_object().take();
}

// The reference's answers: what a later run must say, and what an oracle may be made of.
std::string trace_json(const Outcome& outcome) {
  JsonWriter json;
  json.begin_object().key("answers").begin_array();
  for (const AnswerRecord& answer : outcome.reference.answers) {
    json.begin_object()
        .field("name", answer.name)
        .list("ids", answer.generation.ids)
        .field("text", answer.generation.text)
        .end_object();
  }
  return json.end_array().end_object().take();
}

}  // namespace

Figures figures_of(const Outcome& outcome) {
  std::vector<double> first, prompt, decode, plain;
  for (const RunRecord& run : outcome.measured) {
    double tokens = 0, seconds = 0;
    for (const AnswerRecord& answer : run.answers) {
      const Statistics& s = answer.generation.statistics;
      first.push_back(s.first_token_seconds * 1e3);
      tokens += static_cast<double>(s.prompt_tokens);
      seconds += s.prompt_seconds;
    }
    prompt.push_back(ratio(tokens, seconds));
    decode.push_back(run.decode_rate());
  }
  for (const RunRecord& run : outcome.plain) plain.push_back(run.decode_rate());
  return {.first_token_ms = median(first),
          .prompt_rate = median(prompt),
          .decode_rate = median(decode),
          .plain_rate = median(plain)};
}

std::string summary(const Contract& contract, const Outcome& outcome, const Environment& environment) {
  const RunRecord& run = outcome.measured.front();
  const Figures figures = figures_of(outcome);
  std::string out = fmt::format("# {}: {}\n\n{}\n\n{}, {} threads, {}; {}\n\n", contract.id,
                                !outcome.correct()     ? "FAIL"
                                : outcome.slow.empty() ? "PASS"
                                                       : "SLOW",
                                contract.description, environment.model, environment.threads, environment.kernel_set,
                                environment.speculation);
  for (const std::string& fault : outcome.faults) out += fmt::format("* fault: {}\n", fault);
  for (const std::string& miss : outcome.slow) out += fmt::format("* speed: {}\n", miss);
  out +=
      "\n| request | prompt | reused | first token, ms | tokens | drafts accepted | tokens per pass | decode | plain | "
      "|\n";
  out += "|---|---|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < run.answers.size(); ++i) {
    const AnswerRecord& answer = run.answers[i];
    const Statistics& s = answer.generation.statistics;
    out += fmt::format("| {} | {} | {} | {:.1f} | {} | {} of {} | {:.2f} | {:.1f} | {:.1f} | {} |\n", answer.name,
                       answer.prompt_length, s.reused_tokens, s.first_token_seconds * 1e3, s.generated_tokens,
                       s.accepted_tokens, s.drafted_tokens,
                       ratio(static_cast<double>(s.generated_tokens), static_cast<double>(s.forwards)),
                       s.generate_rate(), outcome.plain.front().answers[i].generation.statistics.generate_rate(),
                       outcome.loops[i] ? "loops" : "");
  }
  out += fmt::format(
      "\nDecoding {:.1f} tokens/s with drafts, {:.1f} without: {:.2f} times{}. First token {:.1f} ms, prompts {:.1f} "
      "tokens/s. {} steps, "
      "{} of {} lookups found a beginning, {} tokens reused.\n",
      figures.decode_rate, figures.plain_rate, outcome.gain,
      outcome.gain_counts ? "" : " (an answer loops: no gain is claimed)", figures.first_token_ms, figures.prompt_rate,
      run.engine.steps, run.engine.prefix_hits, run.engine.prefix_lookups, run.engine.reused_tokens);
  return out;
}

Status write_folder(const std::filesystem::path& folder, const Contract& contract, const Outcome& outcome,
                    const Environment& environment) {
  const std::pair<const char*, std::string> files[] = {
      {"contract.json", contract.source},
      {"environment.json", environment_json(environment)},
      {"routes.json", routes_json(outcome)},
      {"trace.json", trace_json(outcome)},
      {"summary.md", summary(contract, outcome, environment)},
      {"metrics.json", metrics_json(contract, outcome, environment)}};  // last: a folder without it is no result
  for (const auto& [name, text] : files) ADZE_TRY_STATUS(write_file_atomic(folder / name, std::string_view(text)));
  return {};
}

Status make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
  if (!error && std::filesystem::create_directory(folder, error)) return {};
  if (!error) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' exists already", folder.string()),
                "name another folder; a result is never overwritten");
  }
  return fail(ErrorCode::io, fmt::format("cannot make '{}': {}", folder.string(), error.message()));
}

Status keep_as_baseline(const std::filesystem::path& result, const std::filesystem::path& name) {
  ADZE_TRY_STATUS(make_folder(name));
  for (const char* file : kFiles) {
    ADZE_TRY(const std::string text, read_file(result / file, limits::kMaxContractBytes));
    ADZE_TRY_STATUS(write_file_atomic(name / file, std::string_view(text)));
  }
  return {};
}

Result<Stored> read_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "metrics.json";
  ADZE_TRY(const std::string text, read_file(path, limits::kMaxContractBytes));
  const auto file = nlohmann::json::parse(text, nullptr, false);
  try {
    Stored stored;
    stored.contract_id = file.at("contract").get<std::string>();
    stored.contract_digest = file.at("contract_digest").get<std::string>();
    stored.model = file.at("model").get<std::string>();
    stored.processor = file.at("processor").get<std::string>();
    stored.correct = file.at("correct").get<bool>();
    const auto& figures = file.at("figures");
    stored.figures = {.first_token_ms = figures.at("first_token_ms").get<double>(),
                      .prompt_rate = figures.at("prompt_rate").get<double>(),
                      .decode_rate = figures.at("decode_rate").get<double>(),
                      .plain_rate = figures.at("plain_rate").get<double>()};
    return stored;
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorCode::corrupt_file, fmt::format("'{}' is not a contract's result", path.string()),
                "give a folder that adze bench contract wrote");
  }
}

Status check_comparable(const Stored& a, const Stored& b) {
  if (!a.correct || !b.correct) {
    return fail(ErrorCode::invalid_argument, "one of the runs failed its contract, so its speed says nothing");
  }
  if (a.contract_digest != b.contract_digest || a.model != b.model) {
    return fail(ErrorCode::invalid_argument, fmt::format("the runs are of different things: {} on {}, and {} on {}",
                                                         a.contract_id, a.model, b.contract_id, b.model));
  }
  return {};
}

std::vector<std::string> worse(const Figures& before, const Figures& now, double band) {
  std::vector<std::string> out;
  const auto check = [&](std::string_view what, double was, double is, bool more_is_better) {
    const double share = more_is_better ? ratio(is, was) : ratio(was, is);
    if (was > 0 && share < 1 - band) out.push_back(fmt::format("{}: {:.1f}, it was {:.1f}", what, is, was));
  };
  check("first token, ms", before.first_token_ms, now.first_token_ms, false);
  check("prompts, tokens/s", before.prompt_rate, now.prompt_rate, true);
  check("decoding, tokens/s", before.decode_rate, now.decode_rate, true);
  return out;
}

}  // namespace adze::cli::contract
