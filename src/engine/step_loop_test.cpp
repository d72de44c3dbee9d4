#include "engine/step_loop.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "cache/page_pool.hpp"
#include "engine/scripted_backend.hpp"
#include "engine/test_vocabulary.hpp"

namespace adze::engine {
namespace {

// Everything that a request needs, around a scripted model.
struct Bench {
  Bench(ScriptedBackend::Model model, std::shared_ptr<const text::Tokenizer> vocabulary, std::int64_t context_length,
        int chunk = 64, std::int32_t pages = 64)
      : tokenizer(std::move(vocabulary)),
        context(context_length),
        backend({.vocabulary = tokenizer->size(), .context = context, .max_batch_rows = chunk, .pages = pages},
                std::move(model)),
        pool(pages),
        slots(0),
        loop(backend, chunk, tokenizer->size(), context) {}

  Sequence sequence(std::vector<std::int32_t> prompt) {
    return {
        .ids = std::move(prompt), .kv = cache::PageTable(pool, backend::kPageTokens), .state = cache::StateSlot(slots)};
  }

  Request request(const std::vector<std::string>& stops = {}, std::int64_t max_tokens = 1000,
                  sample::SamplerParameters parameters = {.temperature = 0}) {
    std::vector<std::int32_t> ends(tokenizer->end_of_generation().begin(), tokenizer->end_of_generation().end());
    std::sort(ends.begin(), ends.end());
    return {.sampler = sample::Sampler::create(std::move(parameters), tokenizer->size()).value(),
            .stops = StopMatcher::create(stops).value(),
            .stop_ids = std::move(ends),
            .max_tokens = max_tokens,
            .hash_logits = true};
  }

  // Steps until the end; the pieces as a stream would see them.
  std::vector<std::string> run(Decoding& decoding) {
    std::vector<std::string> pieces;
    Decoding* one[] = {&decoding};
    while (!decoding.finished()) {
      loop.step(one);
      if (const auto piece = decoding.take_text(); !piece.empty()) pieces.emplace_back(piece);
    }
    return pieces;
  }

  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::int64_t context;
  ScriptedBackend backend;
  cache::PagePool pool;
  cache::SlotPool slots;
  StepLoop loop;
};

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
  const std::vector<std::int32_t> prompt{1, 2, 3};
  Bench bench(ScriptedBackend::play(script, 3, *vocabulary->eos()), vocabulary, context);
  Sequence sequence = bench.sequence(prompt);
  Decoding decoding(sequence, bench.request(stops, max_tokens), vocabulary, context);
  Answer answer;
  answer.pieces = bench.run(decoding);
  answer.text = decoding.text();
  answer.finish = decoding.finish();
  answer.match = decoding.stop_match();
  answer.ids = decoding.ids();
  EXPECT_EQ(std::accumulate(answer.pieces.begin(), answer.pieces.end(), std::string()), answer.text);
  return answer;
}

TEST(StepLoop, EndsAtTheModelsEnd) {
  const Answer answer = say({" Hi", " there"}, {});
  EXPECT_EQ(answer.text, " Hi there");  // the first piece keeps its space
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(answer.match, "");
  EXPECT_EQ(answer.ids, (std::vector<std::int32_t>{256, 257}));
}

TEST(StepLoop, StopStrings) {
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

TEST(StepLoop, StreamsWholeCharacters) {
  // The thumbs-up with a skin tone of cases T23, cut as Llama's tokens cut it.
  const Answer answer = say({"\xf0\x9f", "\x91", "\x8d", "\xf0\x9f", "\x8f", "\xbd"}, {});
  EXPECT_EQ(answer.pieces, (std::vector<std::string>{"👍", "🏽"}));
  // A character that is never finished becomes one U+FFFD at the end, not before.
  EXPECT_EQ(say({"a", "\xf0\x9f"}, {}).pieces, (std::vector<std::string>{"a", "\xef\xbf\xbd"}));
}

TEST(StepLoop, Lengths) {
  const std::vector<std::string> letters{"a", "b", "c", "d", "e"};
  EXPECT_EQ(say(letters, {}, 2).text, "ab");
  EXPECT_EQ(say(letters, {}, 2).finish, FinishReason::length);
  EXPECT_EQ(say(letters, {}, 0).text, "");
  EXPECT_EQ(say(letters, {}, 0).finish, FinishReason::length);
  EXPECT_EQ(say(letters, {}, 9223372036854775807, 6).text, "abc");  // 3 of the prompt and 3 fill the context
  EXPECT_EQ(say(letters, {}, 9223372036854775807, 6).finish, FinishReason::length);
}

TEST(StepLoop, IgnoresTheEndWhenTold) {
  const auto vocabulary = test_vocabulary({"a", "b"});
  Bench bench(ScriptedBackend::play({256, *vocabulary->eos(), 257}, 1, *vocabulary->eos()), vocabulary, 100);
  Sequence sequence = bench.sequence({7});
  Request request = bench.request({}, 3, {.temperature = 0, .banned = {*vocabulary->eos(), *vocabulary->eot()}});
  request.stop_ids = {};
  Decoding decoding(sequence, std::move(request), vocabulary, 100);
  bench.run(decoding);
  EXPECT_EQ(decoding.ids(), (std::vector<std::int32_t>{256, 0, 257}));
  EXPECT_EQ(decoding.finish(), FinishReason::length);
}

TEST(StepLoop, ChunksDoNotMatter) {
  const auto vocabulary = test_vocabulary({});
  std::vector<std::int32_t> prompt(200);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int32_t>(i * 7 % 256);
  std::vector<std::int32_t> expected;
  std::string hash;
  for (const int chunk : {1, 3, 64, 256}) {
    Bench bench(ScriptedBackend::noise(5), vocabulary, 400, chunk);
    Sequence sequence = bench.sequence(prompt);
    Decoding decoding(sequence, bench.request({}, 50, {.temperature = 0.9f, .top_k = 20, .seed = 3}), vocabulary, 400);
    bench.run(decoding);
    if (expected.empty()) {
      expected = decoding.ids();
      hash = decoding.logits_hash();
    }
    EXPECT_EQ(decoding.ids(), expected) << chunk;
    EXPECT_EQ(decoding.logits_hash(), hash);
    EXPECT_EQ(bench.backend.rows_run(), 200 + std::ssize(expected) - 1 + (decoding.finish() == FinishReason::stop));
  }
  EXPECT_EQ(hash.size(), 32u);
}

// Requests that run together get what each gets alone.
TEST(StepLoop, RequestsDoNotSeeEachOther) {
  const auto vocabulary = test_vocabulary({});
  const auto parameters = [](int i) {
    return sample::SamplerParameters{.temperature = 0.8f, .top_p = 0.9f, .seed = static_cast<std::uint64_t>(i)};
  };
  const auto prompt = [](int i) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(1 + i * 37));
    std::iota(ids.begin(), ids.end(), i);
    return ids;
  };
  constexpr int kRequests = 5;
  std::vector<std::vector<std::int32_t>> alone;
  for (int i = 0; i < kRequests; ++i) {
    Bench bench(ScriptedBackend::noise(9), vocabulary, 512);
    Sequence sequence = bench.sequence(prompt(i));
    Decoding decoding(sequence, bench.request({}, 80, parameters(i)), vocabulary, 512);
    bench.run(decoding);
    alone.push_back(decoding.ids());
  }
  Bench bench(ScriptedBackend::noise(9), vocabulary, 512, 16);
  std::vector<Sequence> sequences;
  std::vector<Decoding> decodings;
  sequences.reserve(kRequests);
  decodings.reserve(kRequests);
  std::vector<Decoding*> running;
  for (int i = 0; i < kRequests; ++i) {
    sequences.push_back(bench.sequence(prompt(i)));
    decodings.emplace_back(sequences.back(), bench.request({}, 80, parameters(i)), vocabulary, 512);
    running.push_back(&decodings.back());
  }
  const auto all_finished = [&] {
    return std::all_of(running.begin(), running.end(), [](auto* d) { return d->finished(); });
  };
  while (!all_finished()) bench.loop.step(running);
  for (int i = 0; i < kRequests; ++i)
    EXPECT_EQ(decodings[static_cast<std::size_t>(i)].ids(), alone[static_cast<std::size_t>(i)]) << i;
}

TEST(StepLoop, CancelFreesWhatItHeld) {
  const auto vocabulary = test_vocabulary({});
  Bench bench(ScriptedBackend::noise(2), vocabulary, 512, 16);
  {
    Sequence sequence = bench.sequence(std::vector<std::int32_t>(100, 5));
    Decoding decoding(sequence, bench.request(), vocabulary, 512);
    Decoding* one[] = {&decoding};
    bench.loop.step(one);
    EXPECT_FALSE(decoding.finished());
    EXPECT_EQ(sequence.kv.length(), 16);
    decoding.cancel();
    EXPECT_EQ(decoding.finish(), FinishReason::cancelled);
    bench.loop.step(one);  // passed over
    EXPECT_EQ(bench.backend.runs(), 1);
  }
  EXPECT_EQ(bench.pool.in_use(), 0);
}

TEST(StepLoop, OneRequestsTroubleIsItsOwn) {
  const auto vocabulary = test_vocabulary({});
  // Two pages: one request of 60 + 40 tokens and one of 10 cannot both end.
  Bench bench(ScriptedBackend::noise(2), vocabulary, 512, 64, 2);
  Sequence big = bench.sequence(std::vector<std::int32_t>(60, 5));
  Sequence small = bench.sequence(std::vector<std::int32_t>(10, 6));
  Decoding a(big, bench.request({}, 40), vocabulary, 512);
  Decoding b(small, bench.request({}, 30), vocabulary, 512);
  Decoding* both[] = {&a, &b};
  while (!a.finished() || !b.finished()) bench.loop.step(both);
  ASSERT_EQ(a.finish(), FinishReason::error);
  EXPECT_EQ(a.error()->code, ErrorCode::out_of_memory);
  EXPECT_NE(b.finish(), FinishReason::error);
}

TEST(StepLoop, ReportsFailures) {
  const auto vocabulary = test_vocabulary({});
  Bench bench(
      [](std::span<const std::int32_t> history, std::span<float> logits) {
        logits[3] = history.size() > 4 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      },
      vocabulary, 512);
  Sequence sequence = bench.sequence({1, 2, 3});
  Decoding decoding(sequence, bench.request(), vocabulary, 512);
  bench.run(decoding);
  EXPECT_EQ(decoding.finish(), FinishReason::error);
  EXPECT_EQ(decoding.error()->code, ErrorCode::non_finite);
  EXPECT_EQ(decoding.ids(), (std::vector<std::int32_t>{3, 3}));

  Sequence other = bench.sequence({1, 2});
  Decoding failing(other, bench.request(), vocabulary, 512);
  bench.backend.fail_next_run({ErrorCode::out_of_memory, "device lost", ""});
  bench.run(failing);
  EXPECT_EQ(failing.error()->message, "device lost");
  EXPECT_EQ(other.kv.length(), 0);
}

TEST(Sequence, KeepsTheCommonBeginning) {
  const auto vocabulary = test_vocabulary({});
  Bench bench(ScriptedBackend::noise(2), vocabulary, 512);
  Sequence sequence = bench.sequence({1, 2, 3, 4, 5, 6});
  Stepper& stepper = bench.loop.stepper();
  const auto compute = [&] {
    stepper.begin();
    ASSERT_TRUE(stepper.add(sequence, 100, [](std::int64_t) { return false; }));
    ASSERT_TRUE(stepper.run());
  };
  compute();
  EXPECT_EQ(sequence.retarget({1, 2, 3, 9, 9, 9, 9}), 3);
  EXPECT_EQ(sequence.waiting(), 4);
  compute();
  EXPECT_EQ(sequence.retarget({1, 2, 3, 9, 9, 9, 9}), 6);  // the last position's logits are wanted again
  compute();
  EXPECT_EQ(sequence.retarget({1, 2}), 1);
  EXPECT_EQ(sequence.retarget({8, 2}), 0);
  EXPECT_EQ(bench.pool.in_use(), 0);
}

}  // namespace
}  // namespace adze::engine
