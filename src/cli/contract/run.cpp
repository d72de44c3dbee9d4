#include "cli/contract/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "cli/console.hpp"

namespace adze::cli::contract {
namespace {

enum class How : std::uint8_t { reference, plain, measured };

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// Fixed for ever: a contract's prompts must not depend on a library's generator (SplitMix64).
std::vector<std::int32_t> random_ids(std::int64_t count, std::uint64_t seed, int vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    ids.push_back(static_cast<std::int32_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(vocabulary)));
  }
  return ids;
}

class Runner {
 public:
  Runner(const Contract& contract, Engine& engine, How how, const RunOptions& options)
      : contract_(contract), engine_(engine), how_(how), options_(options), records_(contract.asks.size()) {}

  Result<RunRecord> run() {
    const double begin = now_seconds();
    std::size_t ended = 0;
    std::vector<std::optional<Answer>> answers(contract_.asks.size());
    while (ended < contract_.asks.size()) {
      if (options_.interrupted && options_.interrupted()) return fail(ErrorCode::cancelled, "stopped");
      for (std::size_t i = 0; i < contract_.asks.size(); ++i) {
        if (answers[i] || records_[i] || !may_start(i)) continue;
        ADZE_TRY(answers[i], submit(i));
        if (how_ == How::reference) break;
      }
      const auto next = std::ranges::find_if(answers, [](const auto& answer) { return answer.has_value(); });
      const auto index = static_cast<std::size_t>(next - answers.begin());
      ADZE_TRY(Generation generation, (*next)->wait());
      if (generation.finish == FinishReason::cancelled) return fail(ErrorCode::cancelled, "stopped");
      next->reset();
      note(index, std::move(generation));
      ++ended;
    }
    RunRecord record;
    record.seconds = now_seconds() - begin;
    record.engine = engine_.statistics();
    for (auto& answer : records_) record.answers.push_back(std::move(*answer));
    return record;
  }

 private:
  bool may_start(std::size_t i) const {
    return std::ranges::all_of(contract_.asks[i].after, [&](const std::string& name) {
      const auto found = std::ranges::find(contract_.asks, name, &Ask::name);
      return records_[static_cast<std::size_t>(found - contract_.asks.begin())].has_value();
    });
  }

  struct Chat {
    std::string system;
    std::vector<ChatMessage> messages;
  };

  Result<std::vector<std::int32_t>> prompt(const Ask& ask) {
    if (ask.is_chat()) {
      Chat chat;
      if (!ask.continues.empty()) chat = chats_.at(ask.continues);
      if (ask.continues.empty()) chat.system = ask.system;
      chat.messages.push_back({.role = "user", .content = ask.user});
      ADZE_TRY(std::vector<std::int32_t> ids, engine_.chat_prompt(chat.messages, chat.system, Thinking::model_default));
      chats_[ask.name] = std::move(chat);
      return ids;
    }
    if (ask.random_count > 0 || !ask.ids.empty()) {
      std::vector<std::int32_t> ids = random_ids(ask.random_count, ask.random_seed, engine_.info().vocabulary);
      ids.insert(ids.end(), ask.ids.begin(), ask.ids.end());
      return ids;
    }
    return engine_.tokenize(ask.text, engine_.adds_bos(), false);
  }

  Result<Answer> submit(std::size_t i) {
    const Ask& ask = contract_.asks[i];
    Request request;
    ADZE_TRY(request.prompt, prompt(ask));
    lengths_[ask.name] = std::ssize(request.prompt);
    request.options = engine_.default_options();
    request.options.sampling = contract_.sampling;
    request.options.max_tokens = ask.max_tokens;
    request.options.cancelled = options_.interrupted;
    request.options.reuse_prefix = how_ != How::reference;
    request.options.speculate = how_ == How::measured;
    return engine_.submit(std::move(request));
  }

  void note(std::size_t i, Generation generation) {
    const Ask& ask = contract_.asks[i];
    if (ask.is_chat()) chats_[ask.name].messages.push_back({.role = "assistant", .content = generation.text});
    records_[i] =
        AnswerRecord{.name = ask.name, .prompt_length = lengths_.at(ask.name), .generation = std::move(generation)};
  }

  const Contract& contract_;
  Engine& engine_;
  How how_;
  const RunOptions& options_;
  std::vector<std::optional<AnswerRecord>> records_;
  std::map<std::string, Chat> chats_;
  std::map<std::string, std::int64_t> lengths_;
};

Result<RunRecord> run_once(const Contract& contract, const RunOptions& options, How how) {
  ADZE_TRY(Engine engine, options.load());
  engine.finish_packs([&](std::uint64_t, std::uint64_t) { return !options.interrupted || !options.interrupted(); });
  return Runner(contract, engine, how, options).run();
}

// Faults of one run beside the reference.
void compare(const Contract& contract, const RunRecord& reference, const RunRecord& run, const std::string& which,
             std::vector<std::string>& faults) {
  std::int64_t reused = 0;
  for (std::size_t i = 0; i < run.answers.size(); ++i) {
    const AnswerRecord& got = run.answers[i];
    const Generation& expected = reference.answers[i].generation;
    const Statistics& s = got.generation.statistics;
    if (got.generation.ids != expected.ids) {
      const auto at = std::ranges::mismatch(got.generation.ids, expected.ids).in1 - got.generation.ids.begin();
      faults.push_back(fmt::format("{}: '{}' differs from plain decoding from token {} on", which, got.name, at));
    }
    if (got.generation.finish != expected.finish || got.generation.text != expected.text) {
      faults.push_back(fmt::format("{}: '{}' ends or reads otherwise than plain decoding", which, got.name));
    }
    if (s.prompt_tokens + s.reused_tokens != got.prompt_length) {
      faults.push_back(fmt::format("{}: '{}' has a prompt of {} tokens, but {} were computed and {} reused", which,
                                   got.name, got.prompt_length, s.prompt_tokens, s.reused_tokens));
    }
    const std::vector<std::int32_t>& oracle = contract.asks[i].oracle;
    if (!oracle.empty() && got.generation.ids != oracle) {
      faults.push_back(fmt::format("{}: '{}' is not what the oracle says", which, got.name));
    }
    reused += s.reused_tokens;
  }
  if (run.engine.pages_in_use != 0 || run.engine.slots_in_use != 0 || run.engine.running + run.engine.waiting != 0) {
    faults.push_back(fmt::format("{}: {} pages and {} states are still in use", which, run.engine.pages_in_use,
                                 run.engine.slots_in_use));
  }
  // What the engine found and what the requests say they were given.
  if (run.engine.reused_tokens < reused) {
    faults.push_back(
        fmt::format("{}: requests report {} reused tokens, the cache {}", which, reused, run.engine.reused_tokens));
  }
}

double reuse_share(const RunRecord& run) {
  double reused = 0, all = 0;
  for (const AnswerRecord& answer : run.answers) {
    reused += static_cast<double>(answer.generation.statistics.reused_tokens);
    all += static_cast<double>(answer.prompt_length);
  }
  return all == 0 ? 0 : reused / all;
}

void judge(const Contract& contract, Outcome& outcome) {
  for (std::size_t round = 0; round < outcome.measured.size(); ++round) {
    compare(contract, outcome.reference, outcome.measured[round], fmt::format("round {}", round + 1), outcome.faults);
    compare(contract, outcome.reference, outcome.plain[round], fmt::format("round {} without drafts", round + 1),
            outcome.faults);
    if (outcome.measured[round].engine.route != outcome.measured.front().engine.route) {
      outcome.faults.push_back(fmt::format("round {} took another route than the first", round + 1));
    }
    if (outcome.plain[round].engine.route != outcome.plain.front().engine.route) {
      outcome.faults.push_back(fmt::format("round {} without drafts took another route than the first", round + 1));
    }
  }
  const double share = reuse_share(outcome.measured.front());
  if (share < contract.checks.least_reuse) {
    outcome.faults.push_back(
        fmt::format("{:.3f} of the prompts was reused, and {:.3f} is asked for", share, contract.checks.least_reuse));
  }
  outcome.gain_counts = true;
  for (const AnswerRecord& answer : outcome.reference.answers) {
    outcome.loops.push_back(repeated_share(answer.generation.ids) >= kLoops);
    outcome.gain_counts = outcome.gain_counts && !outcome.loops.back();
  }
  std::vector<double> with, without;
  for (const RunRecord& run : outcome.measured) with.push_back(run.decode_rate());
  for (const RunRecord& run : outcome.plain) without.push_back(run.decode_rate());
  const double base = median(without);
  outcome.gain = base > 0 ? median(with) / base : 0;
  if (!contract.checks.least_gain) return;
  if (!outcome.gain_counts) {
    outcome.slow.emplace_back("an answer loops, so the gain of drafts says nothing");
  } else if (outcome.gain < *contract.checks.least_gain) {
    outcome.slow.push_back(fmt::format("drafts give {:.2f} times plain decoding, and {:.2f} is asked for", outcome.gain,
                                       *contract.checks.least_gain));
  }
}

}  // namespace

double RunRecord::decode_rate() const {
  double tokens = 0, time = 0;
  for (const AnswerRecord& answer : answers) {
    tokens += static_cast<double>(std::max<std::int64_t>(answer.generation.statistics.generated_tokens - 1, 0));
    time += answer.generation.statistics.generate_seconds;
  }
  return time > 0 ? tokens / time : 0;
}

Result<Outcome> run_contract(const Contract& contract, const RunOptions& options) {
  Outcome outcome;
  ADZE_TRY(outcome.reference, run_once(contract, options, How::reference));
  for (int round = 0; round < options.rounds; ++round) {
    if (options.progress) options.progress((1.0 + 2 * round) / (1 + 2 * options.rounds));
    ADZE_TRY(outcome.plain.emplace_back(), run_once(contract, options, How::plain));
    ADZE_TRY(outcome.measured.emplace_back(), run_once(contract, options, How::measured));
  }
  judge(contract, outcome);
  return outcome;
}

}  // namespace adze::cli::contract
