#include "speculate/model_drafter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/scripted_backend.hpp"
#include "sample/random.hpp"

namespace adze::speculate {
namespace {

using engine::ScriptedBackend;
using Tokens = std::vector<std::int32_t>;

constexpr int kVocabulary = 40;
constexpr std::int64_t kContext = 700;

struct Memory {
  std::int32_t full = 60, sliding = 0, slots = 0;
  std::int64_t window = 0;
};

// A drafter, and requests as an engine would have them: their own model is a function of the text.
class Bench {
 public:
  explicit Bench(const Memory& memory, std::uint64_t draft_seed = 1, int max_rows = 64, int catch_up_rows = 1024)
      : window_(memory.full == 0 ? memory.window : kContext + 64),
        model_({.vocabulary = kVocabulary,
                .context = kContext,
                .max_batch_rows = max_rows,
                .pages = memory.full,
                .sliding_pages = memory.sliding,
                .window = memory.window,
                .slots = memory.slots},
               ScriptedBackend::noise(draft_seed)),
        drafter_(model_, {.cache = {.full_pages = memory.full,
                                    .sliding_pages = memory.sliding,
                                    .slots = memory.slots,
                                    .window = memory.window},
                          .root = {1, 2},
                          .vocabulary = kVocabulary,
                          .context = kContext,
                          .max_rows = max_rows,
                          .catch_up_rows = catch_up_rows}) {}

  void add(std::uint64_t id, std::size_t prompt, const sample::SamplerParameters& parameters) {
    Request request{
        .id = id, .sampler = sample::Sampler::create(parameters, kVocabulary).value(), .text = {}, .prompt = 0};
    for (std::size_t i = 0; i < prompt; ++i) {
      request.text.push_back(static_cast<std::int32_t>(sample::mix64(id * 1000 + i) % kVocabulary));
    }
    request.prompt = static_cast<std::int64_t>(prompt);
    requests_.push_back(std::move(request));
  }

  // What the target itself says behind `text`.
  std::int32_t say(const sample::Sampler& sampler, const Tokens& text) {
    std::vector<float> logits(kVocabulary);
    target_(std::span(text).last(std::min(text.size(), static_cast<std::size_t>(window_))), logits);
    return sampler.sample(logits, text, std::ssize(text), scratch_).value();
  }

  // One step of all requests, with drafts of `most`; of those only whose bit is set.
  void step(int most, std::uint64_t which = ~std::uint64_t{0}) {
    std::vector<DraftJob> jobs;
    std::vector<Request*> asking;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      Request& r = requests_[i];
      if ((which >> i & 1) == 0) continue;
      jobs.push_back({.request = r.id, .text = r.text, .prompt_length = r.prompt, .most = most, .sampler = &r.sampler});
      asking.push_back(&r);
    }
    drafter_.propose(jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Request& r = *asking[i];
      const Tokens& draft = jobs[i].draft;
      ASSERT_LE(std::ssize(draft), most);
      int right = 0;
      for (;;) {
        const std::int32_t token = say(r.sampler, r.text);
        r.text.push_back(token);
        if (right == std::ssize(draft) || draft[static_cast<std::size_t>(right)] != token) break;
        ++right;
      }
      if (!draft.empty()) drafter_.verified(r.id, draft, right);
      drafted += std::ssize(draft);
      accepted += right;
    }
  }

  void forget_first() {
    drafter_.forget(requests_.front().id);
    requests_.erase(requests_.begin());
  }

  // Every text is what plain decoding says.
  void check_texts() {
    for (const Request& r : requests_) {
      Tokens plain(r.text.begin(), r.text.begin() + r.prompt);
      while (plain.size() < r.text.size()) plain.push_back(say(r.sampler, plain));
      EXPECT_EQ(plain, r.text) << "request " << r.id;
    }
  }

  void forget_all() {
    for (const Request& r : requests_) drafter_.forget(r.id);
    requests_.clear();
    EXPECT_EQ(drafter_.requests(), 0u);
    EXPECT_EQ(drafter_.cache().in_use(cache::Group::full), 0);
    EXPECT_EQ(drafter_.cache().in_use(cache::Group::sliding), 0);
    EXPECT_EQ(drafter_.cache().slots_in_use(), 0);
  }

  ScriptedBackend& model() { return model_; }
  ModelDrafter& drafter() { return drafter_; }

  std::int64_t drafted = 0, accepted = 0;

 private:
  struct Request {
    std::uint64_t id = 0;
    sample::Sampler sampler;
    Tokens text;
    std::int64_t prompt = 0;
  };

  std::int64_t window_;  // what the models see of a text
  ScriptedBackend model_;
  ScriptedBackend::Model target_ = ScriptedBackend::noise(1);
  ModelDrafter drafter_;
  sample::Scratch scratch_{kVocabulary, kContext + 64};
  std::vector<Request> requests_;
};

sample::SamplerParameters greedy() {
  sample::SamplerParameters p;
  p.temperature = 0;
  return p;
}

sample::SamplerParameters sampled(std::uint64_t seed) {
  sample::SamplerParameters p;
  p.temperature = 0.9f;
  p.top_p = 0.95f;
  p.repetition_penalty = 1.2f;
  p.seed = seed;
  return p;
}

const Memory kMemories[] = {
    {},                                         // attention
    {.full = 60, .sliding = 30, .window = 50},  // and windows
    {.full = 0, .sliding = 30, .window = 50},   // windows only
    {.full = 60, .slots = 12},                  // and recurrent layers
    {.full = 60, .sliding = 30, .slots = 12, .window = 70},
};

TEST(ModelDrafter, TheModelItselfIsAlwaysRight) {
  for (const Memory& memory : kMemories) {
    Bench bench(memory);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      bench.add(id, 20 + 43 * id, id % 2 == 0 ? greedy() : sampled(id));  // page edges are at 64
    }
    for (int i = 0; i < 40; ++i) bench.step(1 + i % 7);
    EXPECT_GT(bench.drafted, 500);
    EXPECT_EQ(bench.accepted, bench.drafted);
    bench.check_texts();
    EXPECT_EQ(bench.drafter().statistics().failures, 0);
    bench.forget_all();
  }
}

// The texts are then full of rejected rows.
TEST(ModelDrafter, AnotherModelIsRolledBack) {
  for (const Memory& memory : kMemories) {
    Bench bench(memory, 2);
    for (std::uint64_t id = 1; id <= 3; ++id) bench.add(id, 30 * id, sampled(id));
    for (int i = 0; i < 60; ++i) bench.step(1 + i % 5);
    EXPECT_GT(bench.drafted, 300);
    EXPECT_LT(bench.accepted, bench.drafted / 2);
    bench.check_texts();
    bench.forget_all();
  }
}

TEST(ModelDrafter, ATokenOfAllJobsCostsOnePass) {
  Bench bench({});
  for (std::uint64_t id = 1; id <= 5; ++id) bench.add(id, 10, greedy());
  bench.step(4);
  EXPECT_EQ(bench.model().runs(), 4);
  EXPECT_EQ(bench.model().rows_run(), 5 * 10 + 5 * 3);
  const std::int64_t rows = bench.model().rows_run();
  bench.step(4);
  // The three drafted rows were the text; the fourth token and the one behind it are new.
  EXPECT_EQ(bench.model().runs(), 8);
  EXPECT_EQ(bench.model().rows_run() - rows, 5 * (2 + 3));
}

TEST(ModelDrafter, ALongPromptIsTakenInPieces) {
  Bench bench({}, 1, 64, 100);
  bench.add(1, 350, greedy());
  bench.add(2, 10, greedy());
  for (int i = 0; i < 3; ++i) {
    const std::int64_t rows = bench.model().rows_run();
    bench.step(2);
    EXPECT_LE(bench.model().rows_run() - rows, 100 + 2);
    EXPECT_EQ(bench.drafted, 2 * (i + 1));  // the short one never waits
  }
  bench.step(2);
  EXPECT_EQ(bench.drafted, 10);
  EXPECT_EQ(bench.accepted, bench.drafted);
}

TEST(ModelDrafter, WithoutRoomThereIsNoDraft) {
  Bench bench({.full = 4});
  for (std::uint64_t id = 1; id <= 3; ++id) bench.add(id, 100, greedy());
  for (int i = 0; i < 10; ++i) bench.step(3);
  EXPECT_GT(bench.drafter().statistics().failures, 0);
  EXPECT_GT(bench.drafted, 0);
  EXPECT_EQ(bench.accepted, bench.drafted);
  bench.check_texts();
  bench.forget_all();
  // What others left behind makes room.
  bench.drafted = bench.accepted = 0;
  bench.add(9, 150, sampled(9));
  bench.step(3);
  EXPECT_EQ(bench.drafted, 3);
}

TEST(ModelDrafter, RequestsThatDoNotAskMakeRoom) {
  for (const std::int32_t slots : {0, 2}) {
    ScriptedBackend model({.vocabulary = kVocabulary, .context = kContext, .pages = 4, .slots = slots},
                          ScriptedBackend::noise(1));
    ModelDrafter drafter(model,
                         {.cache = {.full_pages = 4, .slots = slots}, .vocabulary = kVocabulary, .context = kContext});
    const auto sampler = sample::Sampler::create(greedy(), kVocabulary).value();
    Tokens text(180, 3);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      text.front() = static_cast<std::int32_t>(id);
      std::vector<DraftJob> jobs{{.request = id, .text = text, .prompt_length = 180, .most = 3, .sampler = &sampler}};
      drafter.propose(jobs);
      EXPECT_EQ(jobs[0].draft.size(), 3u) << id;
    }
    EXPECT_EQ(drafter.requests(), 4u);
    for (std::uint64_t id = 1; id <= 4; ++id) drafter.forget(id);
  }
}

TEST(ModelDrafter, AFailedPassCostsADraftAndNoMore) {
  for (const Memory& memory : kMemories) {
    Bench bench(memory, 1, 256);
    bench.add(1, 90, greedy());
    bench.add(2, 70, sampled(2));
    const auto fail_next = [&] { bench.model().fail_next_run({ErrorCode::non_finite, "a logit is not finite", ""}); };
    fail_next();
    bench.step(4);
    EXPECT_EQ(bench.drafted, 0);
    for (int i = 0; i < 10; ++i) {
      if (i % 3 == 2) fail_next();
      bench.step(4);
    }
    EXPECT_GT(bench.drafted, 40);
    EXPECT_EQ(bench.accepted, bench.drafted);
    bench.check_texts();
    bench.forget_all();
  }
}

// Whatever comes: requests that come and go, skip steps and fill the memory, passes that fail. What the drafter knows
// of a text is never wrong, or it would not always be right.
TEST(ModelDrafter, IsRightInAnyScenario) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::uint64_t count = 0;
    const auto below = [&](std::uint64_t n) { return sample::mix64(seed * sample::kGolden + ++count) % n; };
    Memory memory = kMemories[seed % std::size(kMemories)];
    if (memory.full > 0) memory.full = static_cast<std::int32_t>(8 + below(12));
    if (memory.sliding > 0) memory.sliding = static_cast<std::int32_t>(8 + below(12));
    if (memory.slots > 0) memory.slots = static_cast<std::int32_t>(2 + below(6));
    Bench bench(memory, 1, static_cast<int>(1 + below(80)), static_cast<int>(30 + below(300)));
    std::uint64_t id = 0;
    int running = 0;
    for (int step = 0; step < 60; ++step) {
      if (running < 5 && below(4) == 0) {
        ++id;
        bench.add(id, 1 + below(200), below(2) == 0 ? greedy() : sampled(id));
        ++running;
      }
      if (running > 0 && below(12) == 0) {
        bench.forget_first();
        --running;
      }
      if (below(15) == 0) bench.model().fail_next_run({ErrorCode::non_finite, "a logit is not finite", ""});
      bench.step(static_cast<int>(1 + below(6)), below(32));
    }
    EXPECT_GT(bench.drafted, 0);
    EXPECT_EQ(bench.accepted, bench.drafted);
    bench.forget_all();
  }
}

// A step may pass in which a request had no row: the draft still stands.
TEST(ModelDrafter, AnUnchangedTextGetsItsDraftAgain) {
  ScriptedBackend model({.vocabulary = kVocabulary, .context = kContext, .pages = 10}, ScriptedBackend::noise(1));
  ModelDrafter drafter(model, {.cache = {.full_pages = 10}, .vocabulary = kVocabulary, .context = kContext});
  const auto sampler = sample::Sampler::create(greedy(), kVocabulary).value();
  const Tokens text(50, 7);
  std::vector<DraftJob> jobs{{.request = 1, .text = text, .prompt_length = 50, .most = 5, .sampler = &sampler}};
  drafter.propose(jobs);
  const Tokens first = jobs[0].draft;
  const std::int64_t runs = model.runs();
  drafter.propose(jobs);
  EXPECT_EQ(jobs[0].draft, first);
  jobs[0].most = 2;
  drafter.propose(jobs);
  EXPECT_EQ(jobs[0].draft, Tokens(first.begin(), first.begin() + 2));
  EXPECT_EQ(model.runs(), runs);
}

TEST(ModelDrafter, StopsAtItsContext) {
  Bench bench({});
  bench.add(1, kContext - 4, greedy());
  bench.step(16);
  EXPECT_EQ(bench.drafted, 5);  // its last position gives a token too
  bench.step(16);
  EXPECT_EQ(bench.drafted, 5);
}

// Models of one tokenizer are padded to different sizes.
TEST(ModelDrafter, LogitsBehindTheTokensDoNotMatter) {
  for (const int vocabulary : {kVocabulary - 3, kVocabulary + 9}) {
    ScriptedBackend model({.vocabulary = vocabulary, .context = kContext, .pages = 10},
                          ScriptedBackend::play({5, 6, 7}, 4, 1));
    ModelDrafter drafter(model, {.cache = {.full_pages = 10}, .vocabulary = kVocabulary, .context = kContext});
    const auto sampler = sample::Sampler::create(sampled(3), kVocabulary).value();
    const Tokens text{1, 2, 3, 4};
    std::vector<DraftJob> jobs{{.request = 1, .text = text, .prompt_length = 4, .most = 3, .sampler = &sampler}};
    drafter.propose(jobs);
    EXPECT_EQ(jobs[0].draft, (Tokens{5, 6, 7}));
  }
}

// The next turn of a chat begins where the last one ended.
TEST(ModelDrafter, AForgottenTextServesTheNextRequest) {
  for (const std::int32_t slots : {0, 4}) {
    ScriptedBackend model({.vocabulary = kVocabulary, .context = kContext, .pages = 20, .slots = slots},
                          ScriptedBackend::noise(1));
    ModelDrafter drafter(model,
                         {.cache = {.full_pages = 20, .slots = slots}, .vocabulary = kVocabulary, .context = kContext});
    const auto sampler = sample::Sampler::create(greedy(), kVocabulary).value();
    Tokens text(200, 7);
    std::vector<DraftJob> jobs{{.request = 1, .text = text, .prompt_length = 200, .most = 1, .sampler = &sampler}};
    drafter.propose(jobs);
    drafter.forget(1);
    text.insert(text.end(), 30, 9);
    const std::int64_t rows = model.rows_run();
    jobs = {{.request = 2, .text = text, .prompt_length = 230, .most = 1, .sampler = &sampler}};
    drafter.propose(jobs);
    EXPECT_EQ(jobs[0].draft.size(), 1u);
    EXPECT_LE(model.rows_run() - rows, 31);
  }
}

}  // namespace
}  // namespace adze::speculate
