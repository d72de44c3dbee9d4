#include "engine/request_loop.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/loop_fixture.hpp"

namespace adze::engine {
namespace {

struct Answer {
  std::vector<std::string> pieces;
  std::string text;
  FinishReason finish;
  std::string match;
  std::vector<std::int32_t> ids;
};

// The model says the pieces, one token each.
Answer say(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
           std::int64_t max_tokens = 1000, std::int64_t context = 512) {
  const auto vocabulary = test_vocabulary(pieces);
  std::vector<std::int32_t> script(pieces.size());
  std::iota(script.begin(), script.end(), kFirstPiece);
  LoopBench bench(ScriptedBackend::play(script, 3, *vocabulary->eos()), vocabulary, {.context = context});
  const LoopBench::Outcome outcome = bench.run(bench.spec({1, 2, 3}, {.max_tokens = max_tokens, .stops = stops}));
  EXPECT_EQ(std::accumulate(outcome.pieces.begin(), outcome.pieces.end(), std::string()), outcome.end->text());
  return {.pieces = outcome.pieces,
          .text = outcome.end->text(),
          .finish = outcome.end->finish(),
          .match = std::string(outcome.end->stop_match()),
          .ids = outcome.end->ids()};
}

TEST(RequestLoop, EndsAtTheModelsEnd) {
  const Answer answer = say({" Hi", " there"}, {});
  EXPECT_EQ(answer.text, " Hi there");  // the first piece keeps its space
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(answer.match, "");
  EXPECT_EQ(answer.ids, (std::vector<std::int32_t>{256, 257}));
}

TEST(RequestLoop, StopStrings) {
  const std::vector<std::string> letters{"O", " P", " Q", " R", " S"};
  EXPECT_EQ(say(letters, {"O P Q"}).text, "");
  EXPECT_EQ(say(letters, {"O P Q"}).finish, FinishReason::stop);
  EXPECT_EQ(say(letters, {"P Q R"}).text, "O ");
  EXPECT_EQ(say({"Sure", "?\n", "x"}, {"\n"}).text, "Sure?");
  EXPECT_EQ(say({"a", "bc"}, {"ab", "abc"}).text, "");
  EXPECT_EQ(say({"a", "b"}, {"abc"}).text, "ab");  // the end comes first: held text is text
  EXPECT_EQ(say({"\xf0\x9f", "\x98", "\x8a", "never"}, {"😊"}).text, "");
  EXPECT_EQ(say({"\xf0\x9f", "\x98", "\x8a", "never"}, {"😊"}).match, "😊");
}

TEST(RequestLoop, StreamsWholeCharacters) {
  // The thumbs-up with a skin tone of cases T23, cut as Llama's tokens cut it.
  const Answer answer = say({"\xf0\x9f", "\x91", "\x8d", "\xf0\x9f", "\x8f", "\xbd"}, {});
  EXPECT_EQ(answer.pieces, (std::vector<std::string>{"👍", "🏽"}));
  // A character that is never finished becomes one U+FFFD at the end, not before.
  EXPECT_EQ(say({"a", "\xf0\x9f"}, {}).pieces, (std::vector<std::string>{"a", "\xef\xbf\xbd"}));
}

TEST(RequestLoop, Lengths) {
  const std::vector<std::string> letters{"a", "b", "c", "d", "e"};
  EXPECT_EQ(say(letters, {}, 2).text, "ab");
  EXPECT_EQ(say(letters, {}, 2).finish, FinishReason::length);
  EXPECT_EQ(say(letters, {}, 0).text, "");
  EXPECT_EQ(say(letters, {}, 0).finish, FinishReason::length);
  EXPECT_EQ(say(letters, {}, 9223372036854775807, 6).text, "abc");  // 3 of the prompt and 3 fill the context
  EXPECT_EQ(say(letters, {}, 9223372036854775807, 6).finish, FinishReason::length);
}

TEST(RequestLoop, IgnoresTheEndWhenTold) {
  const auto vocabulary = test_vocabulary({"a", "b"});
  LoopBench bench(ScriptedBackend::play({256, *vocabulary->eos(), 257}, 1, *vocabulary->eos()), vocabulary, {});
  RequestSpec spec = bench.spec(
      {7}, {.max_tokens = 3, .sampling = {.temperature = 0, .banned = {*vocabulary->eos(), *vocabulary->eot()}}});
  spec.answer.stop_ids = {};
  const LoopBench::Outcome outcome = bench.run(std::move(spec));
  EXPECT_EQ(outcome.end->ids(), (std::vector<std::int32_t>{256, 0, 257}));
  EXPECT_EQ(outcome.end->finish(), FinishReason::length);
}

TEST(RequestLoop, ChunksDoNotMatter) {
  const auto vocabulary = test_vocabulary({});
  std::vector<std::int32_t> prompt(200);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int32_t>(i * 7 % 256);
  std::vector<std::int32_t> expected;
  std::string hash;
  for (const int chunk : {1, 3, 64, 256}) {
    LoopBench bench(ScriptedBackend::noise(5), vocabulary, {.context = 400, .chunk = chunk});
    const LoopBench::Outcome outcome =
        bench.run(bench.spec(prompt, {.max_tokens = 50, .sampling = {.temperature = 0.9f, .top_k = 20, .seed = 3}}));
    if (expected.empty()) {
      expected = outcome.end->ids();
      hash = outcome.end->logits_hash();
    }
    EXPECT_EQ(outcome.end->ids(), expected) << chunk;
    EXPECT_EQ(outcome.end->logits_hash(), hash);
    const bool stopped = outcome.end->finish() == FinishReason::stop;
    EXPECT_EQ(bench.backend.rows_run(), 200 + std::ssize(expected) - 1 + (stopped ? 1 : 0));
  }
  EXPECT_EQ(hash.size(), 32u);
}

// Requests that run together get what each gets alone.
TEST(RequestLoop, RequestsDoNotSeeEachOther) {
  const auto vocabulary = test_vocabulary({});
  const auto request = [](LoopBench& bench, int i) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(1 + i * 37));
    std::iota(ids.begin(), ids.end(), i);
    return bench.spec(ids, {.max_tokens = 80,
                            .sampling = {.temperature = 0.8f, .top_p = 0.9f, .seed = static_cast<std::uint64_t>(i)}});
  };
  constexpr int kRequests = 5;
  LoopBench together(ScriptedBackend::noise(9), vocabulary, {.chunk = 16});
  std::vector<RequestId> ids;
  for (int i = 0; i < kRequests; ++i) ids.push_back(together.submit(request(together, i)));
  together.run_all();
  for (int i = 0; i < kRequests; ++i) {
    LoopBench bench(ScriptedBackend::noise(9), vocabulary, {});
    EXPECT_EQ(together.outcomes.at(ids[static_cast<std::size_t>(i)]).end->ids(),
              bench.run(request(bench, i)).end->ids())
        << i;
  }
}

TEST(RequestLoop, CancelFreesWhatItHeld) {
  const auto vocabulary = test_vocabulary({});
  LoopBench bench(ScriptedBackend::noise(2), vocabulary, {.chunk = 16});
  const RequestId id = bench.submit(bench.spec(std::vector<std::int32_t>(100, 5), {}));
  bench.step();
  EXPECT_GT(bench.cache.in_use(cache::Group::full), 0);
  bench.loop.cancel(id);
  bench.step();
  EXPECT_EQ(bench.outcomes.at(id).end->finish(), FinishReason::cancelled);
  EXPECT_EQ(bench.backend.runs(), 1);
  EXPECT_EQ(bench.cache.in_use(cache::Group::full), 0);
  EXPECT_TRUE(bench.loop.idle());
}

// What is cut off never stands for another end than the stop string.
TEST(RequestLoop, ABrokenCharacterMayCompleteAStopString) {
  const Answer answer = say({"a", "\xf0\x9f"}, {"a\xef\xbf\xbd"}, 2);
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(answer.match, "a\xef\xbf\xbd");
}

// Two pages for a text of 60 + 40 tokens and one of 10 + 30: the younger one gives its page up and comes again.
TEST(RequestLoop, TheYoungerGivesRoomAndResumes) {
  const auto vocabulary = test_vocabulary({});
  const auto big = [](LoopBench& bench) { return bench.spec(std::vector<std::int32_t>(60, 5), {.max_tokens = 40}); };
  const auto small = [](LoopBench& bench) { return bench.spec(std::vector<std::int32_t>(10, 6), {.max_tokens = 30}); };
  LoopBench bench(ScriptedBackend::noise(2), vocabulary, {.pages = 2});
  const RequestId a = bench.submit(big(bench)), b = bench.submit(small(bench));
  bench.run_all();
  LoopBench alone(ScriptedBackend::noise(2), vocabulary, {});
  EXPECT_EQ(bench.outcomes.at(a).end->ids(), alone.run(big(alone)).end->ids());
  EXPECT_EQ(bench.outcomes.at(b).end->ids(), alone.run(small(alone)).end->ids());
  EXPECT_EQ(bench.outcomes.at(a).counts.preemptions, 0);
  EXPECT_EQ(bench.cache.in_use(cache::Group::full), 0);
}

TEST(RequestLoop, ReportsFailures) {
  const auto vocabulary = test_vocabulary({});
  LoopBench bench(
      [](std::span<const std::int32_t> history, std::span<float> logits) {
        logits[3] = history.size() > 4 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      },
      vocabulary, {});
  const LoopBench::Outcome outcome = bench.run(bench.spec({1, 2, 3}, {}));
  EXPECT_EQ(outcome.end->finish(), FinishReason::error);
  EXPECT_EQ(outcome.end->error()->code, ErrorCode::non_finite);
  EXPECT_EQ(outcome.end->ids(), (std::vector<std::int32_t>{3, 3}));

  bench.backend.fail_next_run({ErrorCode::out_of_memory, "device lost", ""});
  EXPECT_EQ(bench.run(bench.spec({1, 2}, {})).end->error()->message, "device lost");
  EXPECT_EQ(bench.cache.in_use(cache::Group::full), 0);
}

// One request's broken logits are its own trouble.
TEST(RequestLoop, AFailureLeavesTheOthers) {
  const auto vocabulary = test_vocabulary({});
  LoopBench bench(
      [](std::span<const std::int32_t> history, std::span<float> logits) {
        logits[3] = history[0] == 9 && history.size() > 4 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      },
      vocabulary, {});
  const RequestId good = bench.submit(bench.spec({1, 2, 3}, {.max_tokens = 8}));
  const RequestId bad = bench.submit(bench.spec({9, 2, 3}, {.max_tokens = 8}));
  bench.run_all();
  EXPECT_EQ(bench.outcomes.at(bad).end->finish(), FinishReason::error);
  EXPECT_EQ(bench.outcomes.at(good).end->ids(), (std::vector<std::int32_t>(8, 3)));
}

// Case T89: the same request three times; of the second only the last token of the prompt is computed.
TEST(RequestLoop, TheSamePromptIsComputedOnce) {
  const auto vocabulary = test_vocabulary({});
  for (const std::int32_t slots : {0, 4}) {
    LoopBench bench(ScriptedBackend::noise(4), vocabulary, {.slots = slots});
    std::vector<std::int32_t> prompt(150);
    std::iota(prompt.begin(), prompt.end(), 20);
    const auto spec = [&] { return bench.spec(prompt, {.max_tokens = 5}); };
    const LoopBench::Outcome first = bench.run(spec());
    EXPECT_EQ(first.counts.reused_tokens, 0);
    EXPECT_EQ(first.counts.why_not_more, cache::MissReason::new_prefix);
    for (int again = 0; again < 2; ++again) {
      const std::int64_t before = bench.backend.rows_run();
      const LoopBench::Outcome next = bench.run(spec());
      EXPECT_EQ(next.end->ids(), first.end->ids());
      EXPECT_EQ(next.end->logits_hash(), first.end->logits_hash());
      EXPECT_EQ(next.counts.reused_tokens, 149) << slots;
      EXPECT_EQ(next.counts.computed_prompt_tokens, 1);
      EXPECT_EQ(next.counts.why_not_more, cache::MissReason::none);
      EXPECT_EQ(bench.backend.rows_run() - before, 1 + 4);
    }
  }
}

// A text that leaves nothing to others gives back what the window has left before the next step is planned.
TEST(RequestLoop, WhatTheWindowLeftIsFreeForTheNextPage) {
  const auto vocabulary = test_vocabulary({});
  for (const bool reuse : {true, false}) {
    LoopBench bench(ScriptedBackend::noise(4), vocabulary,
                    {.chunk = 1, .pages = 0, .sliding_pages = 2, .window = 20, .checkpoint_tokens = 64});
    RequestSpec spec = bench.spec(std::vector<std::int32_t>(200, 5), {.max_tokens = 5});
    spec.reuse = reuse;
    EXPECT_EQ(bench.run(std::move(spec)).end->ids().size(), 5u);
  }
}

TEST(RequestLoop, CopiesShareTheirPrompt) {
  const auto vocabulary = test_vocabulary({});
  LoopBench bench(ScriptedBackend::noise(4), vocabulary, {});
  std::vector<std::int32_t> prompt(150);
  std::iota(prompt.begin(), prompt.end(), 20);
  const auto spec = [&](LoopBench& of, std::uint64_t seed) {
    return of.spec(prompt, {.max_tokens = 9, .sampling = {.temperature = 1.5f, .seed = seed}});
  };
  std::vector<RequestId> ids;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    RequestSpec copy = spec(bench, seed);
    if (seed > 0) copy.sibling = ids.front();
    ids.push_back(bench.submit(std::move(copy)));
  }
  bench.run_all();
  EXPECT_EQ(bench.backend.rows_run(), 150 + 4 * 8);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    LoopBench alone(ScriptedBackend::noise(4), vocabulary, {});
    EXPECT_EQ(bench.outcomes.at(ids[seed]).end->ids(), alone.run(spec(alone, seed)).end->ids()) << seed;
  }
}

// A copy that is cancelled in the very step in which the first one fails hands nobody on: the others begin by
// themselves.
TEST(RequestLoop, CopiesOfALostFirstOneGoOn) {
  const auto vocabulary = test_vocabulary({});
  LoopBench bench(ScriptedBackend::noise(4), vocabulary, {.chunk = 16});
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) {
    RequestSpec copy = bench.spec(std::vector<std::int32_t>(100, 7), {.max_tokens = 3});
    if (i > 0) copy.sibling = ids.front();
    ids.push_back(bench.submit(std::move(copy)));
  }
  bench.step();
  bench.loop.cancel(ids[1]);
  bench.backend.fail_next_run({ErrorCode::io, "device lost", ""});
  for (int step = 0; step < 30; ++step) bench.step();
  ASSERT_TRUE(bench.loop.idle());
  EXPECT_EQ(bench.outcomes.at(ids[0]).end->finish(), FinishReason::error);
  EXPECT_EQ(bench.outcomes.at(ids[1]).end->finish(), FinishReason::cancelled);
  EXPECT_EQ(bench.outcomes.at(ids[2]).end->ids().size(), 3u);
  EXPECT_EQ(bench.outcomes.at(ids[3]).counts.reused_tokens, 100);
}

TEST(RequestLoop, DeadlinesAndPriorities) {
  const auto vocabulary = test_vocabulary({});
  LoopBench bench(ScriptedBackend::noise(4), vocabulary, {.max_running = 1});
  const RequestId first = bench.submit(bench.spec({1, 2}, {.max_tokens = 30}));
  bench.step();
  RequestSpec late = bench.spec({3, 4}, {.max_tokens = 3});
  late.start_by = 5;
  const RequestId never = bench.submit(std::move(late));
  const RequestId plain = bench.submit(bench.spec({5, 6}, {.max_tokens = 3}));
  RequestSpec urgent = bench.spec({7, 8}, {.max_tokens = 3});
  urgent.priority = 1;
  const RequestId preferred = bench.submit(std::move(urgent));
  bench.now = 6;
  bench.run_all();
  EXPECT_EQ(bench.outcomes.at(never).end->error()->code, ErrorCode::timed_out);
  EXPECT_EQ(bench.order, (std::vector<RequestId>{never, first, preferred, plain}));

  RequestSpec slow = bench.spec({9}, {.max_tokens = 30});
  slow.finish_by = 10;
  const RequestId cut = bench.submit(std::move(slow));
  bench.step();
  bench.now = 11;
  bench.run_all();
  EXPECT_EQ(bench.outcomes.at(cut).end->error()->code, ErrorCode::timed_out);
}

}  // namespace
}  // namespace adze::engine
