// Random lives of random requests over random models: whatever runs beside a request, is shared with it, drafted for it
// or taken from it, it says what it would say alone. ADZE_TEST_SCENARIOS=N runs more of them, ADZE_TEST_SEED=S begins
// with that one, and runs it alone when N is not set.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "engine/random_requests.hpp"
#include "speculate/model_drafter.hpp"
#include "speculate/ngram_drafter.hpp"

namespace adze::engine {
namespace {

// Drafts at random, or what the model would say with a chance in between: ends of answers too, and beyond them.
class ChanceDrafter final : public speculate::Drafter {
 public:
  ChanceDrafter(const Scenario& scenario, int vocabulary)
      : scenario_(scenario),
        random_(scenario.seed),
        logits_(static_cast<std::size_t>(vocabulary)),
        scratch_(vocabulary, scenario.options.context + limits::kMaxDraft) {}
  void propose(std::span<speculate::DraftJob> jobs) override {
    for (speculate::DraftJob& job : jobs) {
      std::vector<std::int32_t> text(job.text.begin(), job.text.end());
      for (int i = random_.between(0, job.most); i > 0; --i) {
        std::int32_t token = random_.one_of(random_.chance(10) ? scenario_.model.ends : scenario_.model.alphabet);
        if (random_.chance(scenario_.right)) {
          scenario_.model(scenario_.seen(text), logits_);
          token = job.sampler->sample(sample::Row{logits_}, text, std::ssize(text), scratch_).value_or(token);
        }
        text.push_back(token);
        job.draft.push_back(token);
      }
    }
  }
  void verified(std::uint64_t request, std::span<const std::int32_t> draft, int accepted) override {
    EXPECT_LE(accepted, std::ssize(draft));
    EXPECT_GT(draft.size(), 0u);
    EXPECT_FALSE(forgotten_.contains(request));
  }
  void forget(std::uint64_t request) override { EXPECT_TRUE(forgotten_.insert({request, true}).second); }

 private:
  const Scenario& scenario_;
  Random random_;
  std::vector<float> logits_;
  sample::Scratch scratch_;
  std::map<std::uint64_t, bool> forgotten_;
};

// Whoever drafts in a scenario, and what it runs on.
struct Drafting {
  Drafting(const Scenario& scenario, int vocabulary) {
    const BenchOptions& o = scenario.options;
    switch (scenario.drafted_by) {
      case DraftedBy::nobody: return;
      case DraftedBy::ngrams:
        drafter = std::make_unique<speculate::NgramDrafter>(o.slots > 0 ? speculate::DraftRules::recurrent()
                                                                        : speculate::DraftRules::attention());
        return;
      case DraftedBy::chance: drafter = std::make_unique<ChanceDrafter>(scenario, vocabulary); return;
      case DraftedBy::model: break;
    }
    RandomModel small = scenario.model;
    if (scenario.right < 100) ++small.seed;
    const std::int32_t slots = o.slots > 0 ? o.slots + 1 : 0;
    model = std::make_unique<ScriptedBackend>(ScriptedOptions{.vocabulary = vocabulary,
                                                              .context = o.context,
                                                              .max_batch_rows = 16,
                                                              .pages = o.pages,
                                                              .sliding_pages = o.sliding_pages,
                                                              .window = o.window,
                                                              .slots = slots},
                                              small);
    drafter = std::make_unique<speculate::ModelDrafter>(
        *model,
        speculate::ModelDrafterOptions{
            .cache = {.full_pages = o.pages, .sliding_pages = o.sliding_pages, .slots = slots, .window = o.window},
            .root = {7, 7},
            .vocabulary = vocabulary,
            .context = o.context,
            .max_rows = 16,
            .catch_up_rows = scenario.right == 50 ? 20 : 1024});
  }

  std::unique_ptr<ScriptedBackend> model;
  std::unique_ptr<speculate::Drafter> drafter;
};

struct Lived {
  std::map<RequestId, LoopBench::Outcome> outcomes;
  std::vector<RequestId> ids;  // of each ask
  Digest route{};
};

class Life {
 public:
  Life(const Scenario& scenario, const std::shared_ptr<const text::Tokenizer>& vocabulary)
      : scenario_(scenario),
        drafting_(scenario, vocabulary->size()),
        bench_(scenario.model, vocabulary, with_drafter()),
        cancel_at_(scenario.asks.size(), -1) {
    lived_.ids.resize(scenario.asks.size());
  }

  // Gives up after `steps`.
  Lived live(int steps) {
    for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
      bool all_came = true;
      for (std::size_t i = 0; i < scenario_.asks.size(); ++i) {
        if (scenario_.asks[i].arrives == step) arrive(i, step);
        all_came = all_came && scenario_.asks[i].arrives <= step;
        if (cancel_at_[i] == step) bench_.loop.cancel(lived_.ids[i]);
      }
      if (scenario_.failing_step == step) bench_.backend.fail_next_run({ErrorCode::io, "device lost", ""});
      bench_.now = step;
      make_step(step);
      if (all_came && bench_.loop.idle()) break;
    }
    EXPECT_TRUE(bench_.loop.idle()) << "somebody starves";
    bench_.cache.clear();
    EXPECT_EQ(bench_.cache.free_pages(cache::Group::full), scenario_.options.pages);
    EXPECT_EQ(bench_.cache.free_pages(cache::Group::sliding), scenario_.options.sliding_pages);
    EXPECT_EQ(bench_.cache.free_slots(), scenario_.options.slots);
    EXPECT_EQ(bench_.cache.nodes(), 0u);
    lived_.route = bench_.loop.route();
    lived_.outcomes = std::move(bench_.outcomes);
    return std::move(lived_);
  }

 private:
  BenchOptions with_drafter() const {
    BenchOptions options = scenario_.options;
    options.drafter = drafting_.drafter.get();
    return options;
  }

  void arrive(std::size_t i, int step) {
    const Ask& ask = scenario_.asks[i];
    RequestSpec spec = spec_of(bench_, ask);
    if (ask.copy_of >= 0) spec.sibling = lived_.ids[static_cast<std::size_t>(ask.copy_of)];
    if (ask.start_by) spec.start_by = step + *ask.start_by;
    if (ask.finish_by) spec.finish_by = step + *ask.finish_by;
    lived_.ids[i] = bench_.submit(std::move(spec));
    if (ask.cancelled) cancel_at_[i] = step + *ask.cancelled;
  }

  void make_step(int step) {
    const bool idle = bench_.loop.idle();
    const std::size_t ended = bench_.order.size();
    bench_.step();
    const StepReport& report = bench_.loop.last_step();
    EXPECT_LE(report.rows, scenario_.options.chunk);
    EXPECT_TRUE(idle || report.rows > 0 || bench_.order.size() > ended) << "step " << step << " does nothing";
    for (std::size_t i = 0; i < scenario_.asks.size(); ++i) {
      if (cancel_at_[i] != step) continue;
      EXPECT_TRUE(bench_.outcomes[lived_.ids[i]].end) << "a cancelled request goes on after a step";
    }
    const auto running = static_cast<std::int32_t>(bench_.loop.size() - bench_.loop.waiting());
    EXPECT_LE(running, scenario_.options.max_running);
    EXPECT_LE(bench_.cache.slots_in_use(), running);
    if (running > 0) return;
    for (const cache::Group group : cache::kEachGroup) EXPECT_EQ(bench_.cache.in_use(group), 0);
  }

  const Scenario& scenario_;
  Drafting drafting_;
  LoopBench bench_;
  std::vector<int> cancel_at_;
  Lived lived_;
};

template <class T>
bool begins_with(const T& whole, const T& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

struct Totals {
  std::int64_t preemptions = 0, reused = 0, accepted = 0, cancelled = 0, lost = 0, late = 0, broken = 0, stops = 0;
};

class Verdict {
 public:
  Verdict(const LoopBench::Outcome& got, const Plainly& said, Totals& totals)
      : got_(got), said_(said), totals_(totals) {}

  void check() {
    ASSERT_TRUE(got_.end);
    std::string pieces;
    for (const std::string& piece : got_.pieces) pieces += piece;
    EXPECT_EQ(pieces, got_.end->text());
    const std::string error = got_.end->error() ? got_.end->error()->message : "";
    const bool late = got_.end->error() && got_.end->error()->code == ErrorCode::timed_out;
    totals_.late += late ? 1 : 0;
    totals_.lost += error == "device lost" ? 1 : 0;
    totals_.cancelled += got_.end->finish() == FinishReason::cancelled ? 1 : 0;
    if (late || error == "device lost" || got_.end->finish() == FinishReason::cancelled) {
      EXPECT_TRUE(begins_with(said_.ids, got_.end->ids()));
      EXPECT_TRUE(begins_with(said_.text, got_.end->text()));
      return;
    }
    EXPECT_EQ(got_.end->finish(), said_.finish);
    EXPECT_EQ(error, said_.error);
    EXPECT_EQ(got_.end->ids(), said_.ids);
    EXPECT_EQ(got_.end->logits_hash(), said_.logits_hash);
    check_log_probabilities();
    totals_.broken += error.empty() ? 0 : 1;
    if (!error.empty()) {  // what a stop string might have swallowed was not said
      EXPECT_TRUE(begins_with(said_.text, got_.end->text()));
      return;
    }
    EXPECT_EQ(got_.end->text(), said_.text);
    EXPECT_EQ(got_.end->stop_match(), said_.stop_match);
    totals_.stops += said_.stop_match.empty() ? 0 : 1;
  }

  void check_counts(const Ask& ask) {
    const RequestCounts& counts = got_.counts;
    EXPECT_LE(counts.speculation.accepted, counts.speculation.drafted);
    EXPECT_LE(counts.reused_tokens, std::ssize(ask.prompt));
    EXPECT_GE(counts.recomputed_tokens, 0);
    if (!ask.speculate) {
      EXPECT_EQ(counts.speculation.drafted, 0);
    }
    if (got_.end->sampled_tokens() > 0 && !got_.end->error() && counts.preemptions == 0) {
      EXPECT_EQ(counts.reused_tokens + counts.computed_prompt_tokens, std::ssize(ask.prompt));
    }
    totals_.preemptions += counts.preemptions;
    totals_.reused += counts.reused_tokens;
    totals_.accepted += counts.speculation.accepted;
  }

 private:
  void check_log_probabilities() {
    const auto& got = got_.end->log_probabilities();
    ASSERT_EQ(got.size(), said_.log_probabilities.size());
    for (std::size_t t = 0; t < got.size(); ++t) {
      EXPECT_EQ(got[t].drawn, said_.log_probabilities[t].drawn);
      EXPECT_EQ(got[t].top, said_.log_probabilities[t].top);
    }
  }

  const LoopBench::Outcome& got_;
  const Plainly& said_;
  Totals& totals_;
};

// A bound on the steps of all: each computes a row at least, and what was preempted may be computed again.
int most_steps(const Scenario& scenario, const std::vector<Plainly>& said) {
  std::size_t rows = 0;
  for (std::size_t i = 0; i < said.size(); ++i) rows += scenario.asks[i].prompt.size() + said[i].ids.size();
  return 200 + static_cast<int>(2 * rows);
}

void check(const Scenario& scenario, const std::shared_ptr<const text::Tokenizer>& vocabulary, Totals& totals) {
  const LoopBench nobody(scenario.model, vocabulary, scenario.options);
  std::vector<Plainly> said;
  for (const Ask& ask : scenario.asks) said.push_back(say_plainly(scenario, nobody, ask));
  const int steps = most_steps(scenario, said);
  const Lived lived = Life(scenario, vocabulary).live(steps);
  if (testing::Test::HasFailure()) return;
  for (std::size_t i = 0; i < scenario.asks.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    Verdict verdict(lived.outcomes.at(lived.ids[i]), said[i], totals);
    verdict.check();
    verdict.check_counts(scenario.asks[i]);
  }
  if (scenario.seed % 4 != 0 || testing::Test::HasFailure()) return;
  const Lived again = Life(scenario, vocabulary).live(steps);
  EXPECT_EQ(lived.route, again.route);
  for (const auto& [id, outcome] : lived.outcomes) EXPECT_EQ(outcome.pieces, again.outcomes.at(id).pieces);
}

// A check that fails ends the program, and then the seed is wanted just as well.
std::uint64_t running_seed = 0;
void tell_seed(int) { std::fprintf(stderr, "ADZE_TEST_SEED=%llu\n", static_cast<unsigned long long>(running_seed)); }

TEST(RequestLoopProperty, CompanyChangesNothing) {
  const auto vocabulary = random_vocabulary();
  const char* seed = std::getenv("ADZE_TEST_SEED");
  const char* more = std::getenv("ADZE_TEST_SCENARIOS");
  const std::uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
  const std::uint64_t count = more != nullptr ? std::strtoull(more, nullptr, 10) : seed != nullptr ? 1 : 4000;
  std::signal(SIGABRT, tell_seed);
  Totals totals;
  for (std::uint64_t number = first; number < first + count; ++number) {
    running_seed = number;
    const Scenario scenario(number, *vocabulary);
    const BenchOptions& o = scenario.options;
    SCOPED_TRACE(testing::Message() << "ADZE_TEST_SEED=" << number << ": context " << o.context << ", chunk " << o.chunk
                                    << ", pages " << o.pages << " and " << o.sliding_pages << ", window " << o.window
                                    << ", slots " << o.slots << ", running " << o.max_running << ", drafted by "
                                    << static_cast<int>(scenario.drafted_by) << ", " << scenario.asks.size()
                                    << " requests");
    check(scenario, vocabulary, totals);
    if (testing::Test::HasFailure()) break;
  }
  std::signal(SIGABRT, SIG_DFL);
  std::cout << "seeds " << first << " to " << first + count - 1 << ": " << totals.preemptions << " preemptions, "
            << totals.reused << " tokens reused, " << totals.accepted << " drafted ones accepted, " << totals.cancelled
            << " cancelled, " << totals.lost << " lost with the device, " << totals.late << " late, " << totals.broken
            << " failed by themselves, " << totals.stops << " stop strings\n";
  if (count < 1000 || testing::Test::HasFailure()) return;
  // It would be a poor test without these.
  EXPECT_GT(totals.preemptions, 50);
  EXPECT_GT(totals.reused, 10'000);
  EXPECT_GT(totals.accepted, 1000);
  EXPECT_GT(totals.cancelled, 50);
  EXPECT_GT(totals.lost, 10);
  EXPECT_GT(totals.late, 10);
  EXPECT_GT(totals.broken, 10);
  EXPECT_GT(totals.stops, 50);
}

}  // namespace
}  // namespace adze::engine
