#include "cli/bench/model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/backend.hpp"
#include "backend/machine.hpp"
#include "base/limits.hpp"
#include "cli/bench/limits.hpp"
#include "cli/bench/peer.hpp"
#include "cli/bench/recorded.hpp"
#include "cli/bench/report.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"

namespace adze::cli::bench {
namespace {

struct Plan {
  std::vector<Case> cases;
  std::int64_t rounds = 5;
  int most_texts = 1;
  std::int64_t most_positions = 1;  // that one case holds at a time
};

Result<Plan> read_plan(const Arguments& arguments) {
  Plan plan;
  const auto counts = [&](std::string_view option, std::string_view standard, int least, int most) {
    return parse_counts(fmt::format("--{}", option), arguments.value(option).value_or(std::string(standard)), least,
                        most);
  };
  constexpr int kMost = limits::kMaxCommandCount;
  ADZE_TRY(const std::vector<int> prompts, counts("prompt-tokens", "512", 0, kMost));
  ADZE_TRY(const std::vector<int> generated, counts("generate-tokens", "128", 0, kMost));
  ADZE_TRY(const std::vector<int> depths, counts("depth", "0", 0, kMost));
  ADZE_TRY(const std::vector<int> batches, counts("batch", "1", 1, limits::kMaxSequences));
  if (const auto text = arguments.value("rounds")) {
    ADZE_TRY(plan.rounds, parse_count("--rounds", *text, 1, kMost));
  }
  for (const int tokens : prompts) {
    if (tokens > 0) plan.cases.push_back({.kind = Case::Kind::prompt, .tokens = tokens});
  }
  for (const int tokens : generated) {
    for (const int depth : depths) {
      for (const int batch : batches) {
        if (tokens == 1) {
          return fail(ErrorCode::invalid_argument, "--generate-tokens: one token has no rate",
                      "The first one comes out of the prompt; give 2 or more, or 0 for none.");
        }
        if (tokens > 0)
          plan.cases.push_back({.kind = Case::Kind::generate, .tokens = tokens, .depth = depth, .batch = batch});
      }
    }
  }
  if (plan.cases.empty())
    return fail(ErrorCode::invalid_argument, "there is nothing to measure", "Leave a 0 out of the options.");
  for (const Case& what : plan.cases) {
    // Texts do not share pages.
    const std::int64_t text = std::max<std::int64_t>(what.depth, 1) + what.tokens;
    plan.most_texts = std::max(plan.most_texts, what.batch);
    // A page more of each: the end of its prompt is kept, and copied when the answer goes on.
    plan.most_positions =
        std::max(plan.most_positions, (backend::pages_for(text) + 1) * backend::kPageTokens * what.batch);
  }
  return plan;
}

// Token ids that exercise the whole embedding table and never end an answer early: a fixed sequence, no randomness.
std::vector<std::int32_t> synthetic_text(std::int64_t tokens, int vocabulary, std::uint32_t seed) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  std::uint32_t state = seed;
  for (std::int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocabulary));
  }
  return ids;
}

// Tokens per second of one case, once. `logits_hash` gets the digest of the first text's logits, if not null: that
// costs a pass over them, outside the measured rounds.
Result<double> measure(Engine& engine, const Case& what, std::string* logits_hash) {
  const int vocabulary = engine.info().vocabulary;
  if (what.kind == Case::Kind::prompt) {
    const std::vector<std::int32_t> prompt = synthetic_text(what.tokens, vocabulary, 1);
    const double begin = now_seconds();
    ADZE_TRY_STATUS(engine.evaluate(
        prompt, [&](std::int64_t position) { return position == what.tokens - 1; },
        [](std::int64_t, std::span<const float>) {}));
    return static_cast<double>(what.tokens) / (now_seconds() - begin);
  }
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = what.tokens;
  options.ignore_eos = true;
  options.cancelled = interrupted;
  options.hash_logits = logits_hash != nullptr;
  std::vector<std::vector<std::int32_t>> texts;
  for (int i = 0; i < what.batch; ++i)
    texts.push_back(synthetic_text(std::max<std::int64_t>(what.depth, 1), vocabulary, 1u + static_cast<unsigned>(i)));
  options.speculate = false;
  options.reuse_prefix = what.depth > 1;
  if (options.reuse_prefix) {  // the texts are computed before, so that all answers begin in one step
    GenerateOptions before = options;
    before.max_tokens = 1;
    before.hash_logits = false;
    ADZE_TRY([[maybe_unused]] const auto computed, engine.generate_together(texts, before));
  }
  ADZE_TRY(const std::vector<Generation> answers, engine.generate_together(texts, options));
  // The rate is that of all texts side by side: they must have begun in one step.
  const auto [first, last] =
      std::ranges::minmax(answers, {}, [](const Generation& answer) { return answer.statistics.first_token_seconds; });
  if (first.statistics.first_token_seconds != last.statistics.first_token_seconds) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("{} texts of {} tokens do not fit side by side", what.batch, what.depth + what.tokens),
                "ask for fewer or shorter ones");
  }
  if (logits_hash != nullptr) *logits_hash = answers.front().logits_hash;
  return answers.front().statistics.generate_rate() * what.batch;
}

// Adze and the peer in turn, round by round, after a round of Adze alone to warm up.
Status run_rounds(const Context& context, Engine& engine, const Plan& plan, const std::optional<Peer>& peer,
                  const std::filesystem::path& model, Limits& limits, Report& report) {
  std::vector<std::uint64_t> working_sets;
  for (const Case& what : plan.cases) {
    report.rows.push_back({.what = what, .rates = {}, .peer_rates = {}, .recorded = {}, .bound = {}});
    working_sets.push_back(working_set_of(engine, forward_of(engine, what)));
  }
  for (std::int64_t round = 0; round <= plan.rounds; ++round) {
    for (std::size_t i = 0; i < plan.cases.size(); ++i) {
      const bool wants_hash = round == 0 && report.logits_hash.empty() && plan.cases[i].kind == Case::Kind::generate;
      ADZE_TRY(const double rate, measure(engine, plan.cases[i], wants_hash ? &report.logits_hash : nullptr));
      if (interrupted()) return fail(ErrorCode::cancelled, "stopped");
      if (round > 0) report.rows[i].rates.push_back(rate);
    }
    if (round > 0 && peer) {
      ADZE_TRY(PeerRound measured, run_peer(*peer, model, report.threads, plan.cases));
      report.peer = std::move(measured.version);
      for (std::size_t i = 0; i < plan.cases.size(); ++i) {
        if (measured.rates[i]) report.rows[i].peer_rates.push_back(*measured.rates[i]);
      }
    }
    for (const std::uint64_t working_set : working_sets) {
      // Enough of them to meet a quiet moment, without doubling the time of a long run.
      if (round < 3) ADZE_TRY_STATUS(limits.measure(working_set));
    }
    context.console.progress("bench", static_cast<double>(round + 1) / static_cast<double>(plan.rounds + 1));
  }
  context.console.end_progress();
  return {};
}

}  // namespace

Result<ExitCode> bench_model(Context& context) {
  const auto name = context.arguments.positional(1);
  if (!name) return fail(ErrorCode::invalid_argument, "adze bench model needs MODEL", "Name a model; see adze list.");
  ADZE_TRY(const Plan plan, read_plan(context.arguments));
  std::optional<Peer> peer;
  if (const auto program = context.arguments.value("peer")) {
    ADZE_TRY(peer, find_peer(*program));
  }
  ADZE_TRY(const std::filesystem::path path, find_model(context, *name));
  ADZE_TRY(Engine engine,
           load_engine_of(context, *name, {.positions = plan.most_positions, .sequences = 2 * plan.most_texts}));
  watch_interrupts();
  wait_for_packs(context, engine);
  Report report;
  report.model = engine.info();
  report.processor = backend::describe_machine().processor;
  ADZE_TRY(const Team team, team_of(context));
  report.threads = team.threads;
  report.kernel_set = team.kernel_set;
  Limits limits(report.kernel_set, report.threads);
  ADZE_TRY_STATUS(run_rounds(context, engine, plan, peer, path, limits, report));
  report.packed_bytes = engine.packs().state == PackState::ready ? engine.packs().total_bytes : 0;
  report.peak_memory_bytes = peak_memory_bytes();
  for (Row& row : report.rows) {
    const ForwardWork work = forward_of(engine, row.what);
    const std::uint64_t working_set = working_set_of(engine, work);
    row.bound = limits.bound(work, working_set);
    const auto recorded = find_recorded(report.model, row.what, report.threads, report.kernel_set);
    if (peer && recorded) row.recorded = recorded->scaled(limits.read_rate(working_set), limits.multiply_rates());
  }
  if (context.arguments.has("json")) {
    context.console.print(report.json());
  } else {
    context.console.print(report.text());
    if (peer) context.console.print(report.markdown());
  }
  if (peer && peer->batched_program.empty() && plan.most_texts > 1)
    context.console.note("no llama-batched-bench beside llama-bench: texts side by side have no peer");
  return ExitCode::ok;
}

}  // namespace adze::cli::bench
