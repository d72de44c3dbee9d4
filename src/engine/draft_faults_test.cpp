// What went wrong in engines that verify drafts, each fault by name: the answer must be plain decoding's, and all of
// it.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "engine/loop_fixture.hpp"

namespace adze::engine {
namespace {

// Drafts what it was told, from wherever the text stands.
class Script final : public speculate::Drafter {
 public:
  Script(std::vector<std::int32_t> answer, std::int64_t prompt_length)
      : answer_(std::move(answer)), prompt_length_(prompt_length) {}
  void propose(std::span<speculate::DraftJob> jobs) override {
    for (speculate::DraftJob& job : jobs) {
      for (auto at = std::ssize(job.text) - prompt_length_; std::ssize(job.draft) < job.most; ++at) {
        if (at < 0 || at >= std::ssize(answer_)) break;
        job.draft.push_back(answer_[static_cast<std::size_t>(at)]);
      }
      longest_ = std::max(longest_, job.draft.size());
    }
  }
  void verified(std::uint64_t, std::span<const std::int32_t>, int accepted) override { accepted_ += accepted; }
  void forget(std::uint64_t) override {}

  std::size_t longest_ = 0;
  std::int64_t accepted_ = 0;

 private:
  std::vector<std::int32_t> answer_;
  std::int64_t prompt_length_;
};

const std::vector<std::int32_t> kPrompt{1, 2, 3};

std::vector<std::int32_t> pieces(int count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), kFirstPiece);
  return ids;
}

std::shared_ptr<const text::Tokenizer> letters(int count) {
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) texts.push_back(std::string(" w") + static_cast<char>('a' + i));
  return test_vocabulary(texts);
}

struct Answered {
  LoopBench::Outcome outcome;
  std::int64_t forwards = 0;
};

// The model says `script`, the drafter `drafts`.
Answered say(const std::vector<std::int32_t>& script, const std::vector<std::int32_t>& drafts, AskOptions ask,
             std::int64_t context = 512, std::int32_t slots = 0) {
  const auto vocabulary = letters(20);
  Script drafter(drafts, 3);
  LoopBench bench(ScriptedBackend::play(script, 3, *vocabulary->eos()), vocabulary,
                  {.context = context, .slots = slots, .drafter = &drafter});
  Answered answered{.outcome = bench.run(bench.spec(kPrompt, std::move(ask)))};
  answered.forwards = bench.backend.runs();
  return answered;
}

TEST(DraftFaults, TheLastTokenOfAResultOfSeveralIsEmitted) {
  for (const std::int32_t slots : {0, 2}) {
    for (int count = 1; count < 18; ++count) {
      const Answered answered = say(pieces(count), pieces(20), {}, 512, slots);
      EXPECT_EQ(answered.outcome.end->ids(), pieces(count));
      EXPECT_EQ(answered.outcome.ids, pieces(count));  // of the events
      if (count > 10) {
        EXPECT_LT(answered.forwards, count);
      }
    }
  }
}

TEST(DraftFaults, AnEndTokenInsideADraft) {
  auto drafts = pieces(20);
  for (int end = 2; end < 12; ++end) {
    const Answered answered = say(pieces(end), drafts, {});
    EXPECT_EQ(answered.outcome.end->ids(), pieces(end));
    EXPECT_EQ(answered.outcome.end->finish(), FinishReason::stop);
  }
  // And one that is drafted where the model goes on.
  drafts[4] = *letters(20)->eos();
  EXPECT_EQ(say(pieces(12), drafts, {}).outcome.end->ids(), pieces(12));
}

TEST(DraftFaults, MaxTokensAndTheContextInsideADraft) {
  for (std::int64_t most = 1; most < 14; ++most) {
    const Answered answered = say(pieces(20), pieces(20), {.max_tokens = most});
    EXPECT_EQ(std::ssize(answered.outcome.end->ids()), most);
    EXPECT_EQ(answered.outcome.end->finish(), FinishReason::length);
    EXPECT_EQ(std::ssize(say(pieces(20), pieces(20), {}, 3 + most + 1).outcome.end->ids()), most + 1);
  }
}

TEST(DraftFaults, AStopStringAcrossADraftsEdge) {
  // " wa wb wc ...": stops that begin and end in every place of the drafts.
  for (int first = 0; first < 10; ++first) {
    const std::string stop = std::string("w") + static_cast<char>('a' + first) + " w" + static_cast<char>('b' + first);
    const Answered answered = say(pieces(20), pieces(20), {.stops = {stop}});
    std::string expected;
    for (int i = 0; i < first; ++i) expected += std::string(" w") + static_cast<char>('a' + i);
    EXPECT_EQ(answered.outcome.end->text(), expected + " ");
    EXPECT_EQ(answered.outcome.end->stop_match(), stop);
    std::string streamed;
    for (const std::string& piece : answered.outcome.pieces) streamed += piece;
    EXPECT_EQ(streamed, expected + " ");
  }
}

TEST(DraftFaults, PositionsOfAPromptInChunks) {
  const auto vocabulary = letters(20);
  std::vector<std::int32_t> prompt(150);
  std::iota(prompt.begin(), prompt.end(), 10);
  LoopBench whole(ScriptedBackend::noise(3), vocabulary, {.chunk = 256});
  const auto expected = whole.run(whole.spec(prompt, {.max_tokens = 40}));
  for (const int chunk : {1, 7, 64}) {
    Script drafter(expected.end->ids(), 150);
    LoopBench bench(ScriptedBackend::noise(3), vocabulary, {.chunk = chunk, .drafter = &drafter});
    const auto got = bench.run(bench.spec(prompt, {.max_tokens = 40}));
    EXPECT_EQ(got.end->logits_hash(), expected.end->logits_hash()) << chunk;
  }
}

TEST(DraftFaults, ASecondRequestDoesNotSeeTheFirstOnesDraft) {
  const auto vocabulary = letters(20);
  Script drafter(pieces(20), 3);
  LoopBench bench(ScriptedBackend::noise(3), vocabulary, {.drafter = &drafter});
  LoopBench plain(ScriptedBackend::noise(3), vocabulary, {});
  for (int i = 0; i < 6; ++i) {
    const std::vector<std::int32_t> prompt{1, 2, 3 + i % 2};
    EXPECT_EQ(bench.run(bench.spec(prompt, {.max_tokens = 5 + i})).end->logits_hash(),
              plain.run(plain.spec(prompt, {.max_tokens = 5 + i})).end->logits_hash());
  }
}

TEST(DraftFaults, TheFirstTokenIsSampledLikeTheOthers) {
  const auto vocabulary = letters(20);
  std::set<std::int32_t> first;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Script drafter(pieces(20), 3);
    LoopBench bench(ScriptedBackend::noise(3), vocabulary, {.drafter = &drafter});
    const auto got = bench.run(bench.spec(kPrompt, {.max_tokens = 1, .sampling = {.temperature = 3.0f, .seed = seed}}));
    if (!got.end->ids().empty()) first.insert(got.end->ids().front());
  }
  EXPECT_GT(first.size(), 10u);
}

// Sampled text with penalties whose history is the draft itself, and which make the draft wrong half-way.
TEST(DraftFaults, PenaltiesAndTemperatureWithDrafts) {
  const auto vocabulary = letters(20);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto spec = [&](LoopBench& bench) {
      return bench.spec(kPrompt, {.max_tokens = 60,
                                  .sampling = {.temperature = 1.0f,
                                               .top_k = 6,
                                               .repetition_penalty = 1.5f,
                                               .frequency_penalty = 0.7f,
                                               .banned = {*vocabulary->eos(), *vocabulary->eot()},
                                               .seed = seed}});
    };
    LoopBench plain(ScriptedBackend::noise(seed), vocabulary, {});
    const auto expected = plain.run(spec(plain));
    Script drafter(expected.end->ids(), 3);
    LoopBench bench(ScriptedBackend::noise(seed), vocabulary, {.slots = seed % 2 == 0 ? 0 : 2, .drafter = &drafter});
    const auto got = bench.run(spec(bench));
    EXPECT_EQ(got.end->ids(), expected.end->ids());
    EXPECT_EQ(got.end->logits_hash(), expected.end->logits_hash());
    EXPECT_EQ(got.counts.speculation.accepted, got.counts.speculation.drafted);  // the draft was always right
    EXPECT_GT(got.counts.speculation.accepted, 30);
  }
}

// A drafter that is never right costs next to nothing, and is asked again when that changes.
TEST(DraftFaults, SpeculationThatDoesNotPaySwitchesItselfOff) {
  const auto vocabulary = letters(20);
  Script drafter(std::vector<std::int32_t>(400, 5), 3);
  LoopBench bench(ScriptedBackend::noise(3), vocabulary, {.drafter = &drafter});
  const auto got = bench.run(bench.spec(
      kPrompt,
      {.max_tokens = 400, .sampling = {.temperature = 0, .banned = {5, *vocabulary->eos(), *vocabulary->eot()}}}));
  EXPECT_LT(got.counts.speculation.drafted, 60);
  EXPECT_GT(got.counts.speculation.closed_steps, 300);
}

}  // namespace
}  // namespace adze::engine
