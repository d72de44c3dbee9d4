// Random lives of random requests over random models: whatever runs beside a request, is shared with it, drafted for it
// or taken from it, it says what it would say alone. ADZE_TEST_SCENARIOS=N runs more of them, ADZE_TEST_SEED=S one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>

#include "engine/loop_fixture.hpp"
#include "sample/random.hpp"
#include "speculate/ngram_drafter.hpp"

namespace adze::engine {
namespace {

using sample::mix64;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix64(seed + 1)) {}
  std::uint64_t bits() { return mix64(state_ += sample::kGolden); }
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint64_t>(n)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + below(static_cast<int>(values.size())));
  }

 private:
  std::uint64_t state_;
};

// Of `effective` tokens; the fewer earlier ones it looks at, the more it repeats itself.
ScriptedBackend::Model model_of(std::uint64_t seed, int effective, std::size_t memory) {
  return [=](std::span<const std::int32_t> history, std::span<float> logits) {
    std::uint64_t key = seed;
    for (const std::int32_t id : history.last(std::min(history.size(), memory))) {
      key = mix64(key + static_cast<std::uint64_t>(id) + 1);
    }
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto noise = static_cast<float>(mix64(key + i * sample::kGolden) >> 40) * 0x1p-21f;
      logits[i] = i < static_cast<std::size_t>(effective) || i >= 256 ? noise - (i >= 256 ? 4.0f : 0.0f) : -30.0f;
    }
  };
}

// Drafts at random, or what the model would say greedily with a chance in between.
class WildDrafter final : public speculate::Drafter {
 public:
  WildDrafter(std::uint64_t seed, int effective, int right, ScriptedBackend::Model model, int vocabulary)
      : random_(seed), effective_(effective), right_(right), model_(std::move(model)), logits_(vocabulary) {}
  void propose(std::span<speculate::DraftJob> jobs) override {
    for (speculate::DraftJob& job : jobs) {
      std::vector<std::int32_t> text(job.text.begin(), job.text.end());
      for (int i = random_.between(0, job.most); i > 0; --i) {
        std::int32_t token = random_.below(effective_);
        if (random_.chance(right_)) {
          model_(text, logits_);
          token = static_cast<std::int32_t>(std::ranges::max_element(logits_) - logits_.begin());
        }
        text.push_back(token);
        job.draft.push_back(token);
      }
    }
  }
  void verified(std::uint64_t, std::span<const std::int32_t> draft, int accepted) override {
    EXPECT_LE(accepted, std::ssize(draft));
    EXPECT_GT(draft.size(), 0u);
  }
  void forget(std::uint64_t) override {}

 private:
  Random random_;
  int effective_, right_;
  ScriptedBackend::Model model_;
  std::vector<float> logits_;
};

struct Ask {
  std::vector<std::int32_t> prompt;
  AskOptions options;
  int root = 0, priority = 0, top_logprobs = -1, copy_of = -1;
  bool reuse = true, speculate = true, odd_only = false;
  int arrives = 0;                 // in this step
  std::optional<int> cancelled{};  // so many steps later
};

struct Scenario {
  explicit Scenario(std::uint64_t number) : seed(number) {
    Random r(seed);
    const int kind = r.below(5);
    options.context = r.one_of({130, 192, 257, 400});
    options.chunk = r.one_of({1, 5, 16, 64, 96});
    const auto most = static_cast<std::int32_t>(backend::pages_for(options.context));
    options.window = kind == 0 || kind == 3 ? 0 : r.one_of({20, 64, 65, 100});
    const auto window_pages = static_cast<std::int32_t>(
        std::min<std::int64_t>(backend::pages_for(options.window + options.chunk) + 2, most + 2));
    const bool tight = r.chance(80);
    options.pages = kind == 1 || kind == 4 ? 0 : most + (tight ? r.below(3) : 60);
    options.sliding_pages = options.window == 0 ? 0 : std::max(window_pages, most) + (tight ? r.below(4) : 60);
    options.slots = kind < 3 ? 0 : r.between(1, 5);
    options.max_running = r.one_of({1, 2, 3, 8, 8});
    effective = r.one_of({2, 4, 12, 40});
    memory = r.one_of<std::size_t>({1, 2, 3, 1000});
    drafter = r.below(4);
    right = r.one_of({0, 50, 90, 100});
    if (r.chance(20)) failing_step = r.below(60);
    std::vector<std::int32_t> base(static_cast<std::size_t>(options.context));
    for (auto& id : base) id = r.below(effective);
    for (int i = r.between(1, 8); i > 0; --i) asks.push_back(ask(r, base));
  }

  Ask ask(Random& r, const std::vector<std::int32_t>& base) {
    Ask a;
    if (!asks.empty() && r.chance(20)) {
      a = asks.back();
      if (a.copy_of < 0) a.copy_of = static_cast<int>(asks.size()) - 1;
      a.options.sampling.seed = r.bits();
      a.cancelled.reset();
      return a;
    }
    const int longest = static_cast<int>(options.context) - 1;
    const int edge = r.one_of({1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, r.between(1, longest),
                               static_cast<int>(options.window) + 1});
    const int shared = r.chance(70) ? r.between(0, edge) : 0;
    for (int i = 0; i < std::min(edge, longest); ++i) {
      a.prompt.push_back(i < shared ? base[static_cast<std::size_t>(i)] : r.below(effective));
    }
    a.options.max_tokens = r.one_of({0, 1, 2, 7, 40, 150, 300});
    sample::SamplerParameters& p = a.options.sampling;
    p.temperature = r.one_of({0.0f, 0.0f, 0.3f, 0.9f, 2.0f});
    p.seed = r.bits();
    if (r.chance(30)) p.top_k = r.between(1, 5);
    if (r.chance(30)) p.top_p = 0.7f;
    if (r.chance(20)) p.repetition_penalty = 1.3f;
    if (r.chance(20)) p.frequency_penalty = 0.5f;
    if (r.chance(20)) p.logit_bias = {{r.below(effective), 2.0f}};
    if (r.chance(40)) {
      a.options.stops = {std::string{static_cast<char>(r.below(effective)), static_cast<char>(r.below(effective))}};
    }
    a.root = r.below(2);
    a.priority = r.one_of({0, 0, 0, 1, -1});
    a.top_logprobs = r.one_of({-1, -1, 0, 3});
    a.reuse = r.chance(85);
    a.speculate = r.chance(85);
    a.odd_only = r.chance(15);
    a.arrives = r.chance(50) ? 0 : r.below(80);
    if (r.chance(25)) a.cancelled = r.below(30);
    return a;
  }

  ScriptedBackend::Model model() const { return model_of(seed, effective, memory); }

  std::uint64_t seed;
  BenchOptions options{};
  int effective = 0, drafter = 0, right = 0;
  std::size_t memory = 0;
  std::optional<int> failing_step;
  std::vector<Ask> asks;
};

RequestSpec spec_of(const LoopBench& bench, const Ask& ask) {
  RequestSpec spec = bench.spec(ask.prompt, ask.options);
  spec.root = digest(std::to_string(ask.root));
  spec.priority = ask.priority;
  spec.reuse = ask.reuse;
  spec.speculate = ask.speculate;
  spec.answer.top_logprobs = ask.top_logprobs;
  if (ask.odd_only) {  // by turns only some tokens are allowed
    spec.answer.token_mask = [](std::span<const std::int32_t> answer, std::span<std::uint32_t> allowed) {
      if (answer.size() % 2 == 1) allowed[0] &= 0x55555555;
    };
  }
  return spec;
}

struct Lived {
  std::map<RequestId, LoopBench::Outcome> outcomes;
  std::vector<RequestId> ids;  // of each ask
  Digest route{};
  std::int64_t preemptions = 0, reused = 0, accepted = 0;
};

Lived live(const Scenario& scenario, const std::shared_ptr<const text::Tokenizer>& vocabulary) {
  std::unique_ptr<speculate::Drafter> drafter;
  BenchOptions options = scenario.options;
  const auto rules = options.slots > 0 ? speculate::DraftRules::recurrent() : speculate::DraftRules::attention();
  if (scenario.drafter == 1) drafter = std::make_unique<speculate::NgramDrafter>(rules);
  if (scenario.drafter > 1) {
    drafter = std::make_unique<WildDrafter>(scenario.seed, scenario.effective, scenario.right, scenario.model(),
                                            vocabulary->size());
  }
  options.drafter = drafter.get();
  LoopBench bench(scenario.model(), vocabulary, options);
  Lived lived;
  lived.ids.resize(scenario.asks.size());
  std::vector<int> cancel_at(scenario.asks.size(), -1);
  for (int step = 0; step < 6000; ++step) {
    bool all_came = true;
    for (std::size_t i = 0; i < scenario.asks.size(); ++i) {
      const Ask& ask = scenario.asks[i];
      const int arrives = ask.copy_of < 0 ? ask.arrives : scenario.asks[static_cast<std::size_t>(ask.copy_of)].arrives;
      all_came = all_came && arrives <= step;
      if (arrives == step) {
        RequestSpec spec = spec_of(bench, ask);
        if (ask.copy_of >= 0) spec.sibling = lived.ids[static_cast<std::size_t>(ask.copy_of)];
        lived.ids[i] = bench.submit(std::move(spec));
        if (ask.cancelled) cancel_at[i] = step + *ask.cancelled;
      }
      if (cancel_at[i] == step) bench.loop.cancel(lived.ids[i]);
    }
    if (scenario.failing_step == step) bench.backend.fail_next_run({ErrorCode::io, "device lost", ""});
    bench.step();
    for (std::size_t i = 0; i < scenario.asks.size(); ++i) {
      if (cancel_at[i] != step) continue;
      EXPECT_TRUE(bench.outcomes[lived.ids[i]].end) << "a cancelled request goes on after a step";
    }
    if (all_came && bench.loop.idle()) break;
  }
  EXPECT_TRUE(bench.loop.idle()) << "somebody starves";
  for (const cache::Group group : cache::kEachGroup) EXPECT_EQ(bench.cache.in_use(group), 0);
  EXPECT_EQ(bench.cache.slots_in_use(), 0);
  bench.cache.clear();
  EXPECT_EQ(bench.cache.free_pages(cache::Group::full), scenario.options.pages);
  EXPECT_EQ(bench.cache.free_pages(cache::Group::sliding), scenario.options.sliding_pages);
  lived.route = bench.loop.route();
  for (const auto& [id, outcome] : bench.outcomes) {
    lived.preemptions += outcome.counts.preemptions;
    lived.reused += outcome.counts.reused_tokens;
    lived.accepted += outcome.counts.speculation.accepted;
  }
  lived.outcomes = std::move(bench.outcomes);
  return lived;
}

// Alone, in an empty engine with memory for everything, without drafts.
LoopBench::Outcome alone(const Scenario& scenario, const Ask& ask,
                         const std::shared_ptr<const text::Tokenizer>& vocabulary) {
  BenchOptions options = scenario.options;
  if (options.pages > 0) options.pages = 64;
  if (options.sliding_pages > 0) options.sliding_pages = 64;
  LoopBench bench(scenario.model(), vocabulary, options);
  Ask plain = ask;
  plain.reuse = plain.speculate = false;
  return bench.run(spec_of(bench, plain));
}

bool begins_with(const std::vector<std::int32_t>& whole, const std::vector<std::int32_t>& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

struct Totals {
  std::int64_t preemptions = 0, reused = 0, accepted = 0, cancelled = 0, failed = 0;
};

void check(const Scenario& scenario, const std::shared_ptr<const text::Tokenizer>& vocabulary, Totals& totals) {
  const Lived lived = live(scenario, vocabulary);
  const Lived again = live(scenario, vocabulary);
  EXPECT_EQ(lived.route, again.route);
  totals.preemptions += lived.preemptions;
  totals.reused += lived.reused;
  totals.accepted += lived.accepted;
  for (std::size_t i = 0; i < scenario.asks.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    const LoopBench::Outcome& got = lived.outcomes.at(lived.ids[i]);
    ASSERT_TRUE(got.end);
    EXPECT_EQ(got.end->ids(), again.outcomes.at(lived.ids[i]).end->ids());
    const LoopBench::Outcome expected = alone(scenario, scenario.asks[i], vocabulary);
    if (got.end->finish() == FinishReason::cancelled) {
      ++totals.cancelled;
      EXPECT_TRUE(begins_with(expected.end->ids(), got.end->ids()));
      continue;
    }
    if (got.end->error() && got.end->error()->message == "device lost") {
      ++totals.failed;
      EXPECT_TRUE(begins_with(expected.end->ids(), got.end->ids()));
      continue;
    }
    EXPECT_EQ(got.end->finish(), expected.end->finish());
    EXPECT_EQ(got.end->error() ? got.end->error()->message : "",
              expected.end->error() ? expected.end->error()->message : "");
    EXPECT_EQ(got.end->ids(), expected.end->ids());
    EXPECT_EQ(got.end->text(), expected.end->text());
    EXPECT_EQ(got.end->stop_match(), expected.end->stop_match());
    EXPECT_EQ(got.end->logits_hash(), expected.end->logits_hash());
    ASSERT_EQ(got.end->log_probabilities().size(), expected.end->log_probabilities().size());
    for (std::size_t t = 0; t < got.end->log_probabilities().size(); ++t) {
      EXPECT_EQ(got.end->log_probabilities()[t].drawn, expected.end->log_probabilities()[t].drawn);
      EXPECT_EQ(got.end->log_probabilities()[t].top, expected.end->log_probabilities()[t].top);
    }
    std::string pieces;
    for (const std::string& piece : got.pieces) pieces += piece;
    EXPECT_EQ(pieces, got.end->text());
  }
}

TEST(RequestLoopProperty, CompanyChangesNothing) {
  const auto vocabulary = test_vocabulary({});
  const char* seed = std::getenv("ADZE_TEST_SEED");
  const char* more = std::getenv("ADZE_TEST_SCENARIOS");
  const std::uint64_t first = seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
  const std::uint64_t count = seed != nullptr ? 1 : more != nullptr ? std::strtoull(more, nullptr, 10) : 2000;
  Totals totals;
  for (std::uint64_t number = first; number < first + count; ++number) {
    const Scenario scenario(number);
    SCOPED_TRACE(testing::Message() << "ADZE_TEST_SEED=" << number << ": context " << scenario.options.context
                                    << ", chunk " << scenario.options.chunk << ", pages " << scenario.options.pages
                                    << " and " << scenario.options.sliding_pages << ", window "
                                    << scenario.options.window << ", slots " << scenario.options.slots << ", drafter "
                                    << scenario.drafter << ", " << scenario.asks.size() << " requests");
    check(scenario, vocabulary, totals);
    if (testing::Test::HasFailure()) break;
  }
  if (count < 1000 || testing::Test::HasFailure()) return;
  // It would be a poor test without these.
  EXPECT_GT(totals.preemptions, 50);
  EXPECT_GT(totals.reused, 10'000);
  EXPECT_GT(totals.accepted, 1000);
  EXPECT_GT(totals.cancelled, 50);
  EXPECT_GT(totals.failed, 10);
}

}  // namespace
}  // namespace adze::engine
