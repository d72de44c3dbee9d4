// The API over a scripted model: what an engine does with its memory, its messages and its callers.
#include <gtest/gtest.h>

#include <algorithm>

#include "adze/adze.hpp"
#include "engine/api_impl.hpp"
#include "engine/policy.hpp"
#include "engine/scripted_backend.hpp"
#include "engine/test_vocabulary.hpp"

namespace adze {
namespace {

using engine::ScriptedBackend;

// An engine of `context` positions over a scripted model; `backend` looks at what the model was asked to do.
struct Scripted {
  explicit Scripted(ScriptedBackend::Model model, std::int64_t context = 1024, int chunk = 64,
                    engine::Host host = engine::system_host(), std::int32_t slots = 0)
      : tokenizer(engine::test_vocabulary({})) {
    engine::CoreParts parts;
    const auto pages = static_cast<std::int32_t>((context + 63) / 64);
    auto made = std::make_unique<ScriptedBackend>(engine::ScriptedOptions{.vocabulary = tokenizer->size(),
                                                                          .context = context,
                                                                          .max_batch_rows = chunk,
                                                                          .pages = pages,
                                                                          .slots = slots},
                                                  std::move(model));
    backend = made.get();
    parts.backend = std::move(made);
    parts.tokenizer = tokenizer;
    parts.chat_template = text::fallback_chat_template();
    parts.template_time = 0;
    parts.host = host;
    parts.info.vocabulary = tokenizer->size();
    parts.info.context = context;
    parts.max_batch_rows = chunk;
    parts.pages = pages;
    parts.slots = slots;
    engine = std::make_unique<Engine>(EngineImpl::assemble(std::move(parts)));
  }

  std::shared_ptr<const text::Tokenizer> tokenizer;
  ScriptedBackend* backend = nullptr;
  std::unique_ptr<Engine> engine;
};

GenerateOptions greedy(std::int64_t max_tokens = 40) {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  options.hash_logits = true;
  return options;
}

GenerateOptions sampled(std::uint64_t seed, std::int64_t max_tokens = 40) {
  GenerateOptions options = greedy(max_tokens);
  options.sampling.temperature = 1.2f;
  options.sampling.seed = seed;
  return options;
}

const std::vector<std::int32_t> kPrompt{10, 20, 30};

TEST(Engine, GeneratesTheSameTwice) {
  Scripted s(ScriptedBackend::noise(1));
  std::string streamed;
  const auto first = s.engine->generate(kPrompt, sampled(5), [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->text, streamed);
  EXPECT_EQ(first->seed, 5u);
  const auto second = s.engine->generate(kPrompt, sampled(5), nullptr);
  EXPECT_EQ(second->ids, first->ids);
  EXPECT_EQ(second->logits_hash, first->logits_hash);
  const auto other = s.engine->generate(kPrompt, sampled(6), nullptr);
  EXPECT_NE(other->ids, first->ids);
  EXPECT_EQ(first->statistics.prompt_tokens, 3);
  EXPECT_EQ(first->statistics.reused_tokens, 0);
  EXPECT_GE(first->statistics.generated_tokens, std::ssize(first->ids));
}

TEST(Engine, DrawsAndReportsASeed) {
  Scripted s(ScriptedBackend::noise(1));
  GenerateOptions options = sampled(0);
  options.sampling.seed.reset();
  const auto first = s.engine->generate(kPrompt, options, nullptr);
  const auto second = s.engine->generate(kPrompt, options, nullptr);
  EXPECT_NE(first->seed, second->seed);
  EXPECT_EQ(s.engine->generate(kPrompt, sampled(first->seed), nullptr)->ids, first->ids);
}

TEST(Engine, RefusesBeforeAnyWork) {
  Scripted s(ScriptedBackend::noise(1), 128);
  const auto refused = [&](std::vector<std::int32_t> prompt, const GenerateOptions& options, ErrorCode code,
                           const std::string& words) {
    const auto result = s.engine->generate(prompt, options, nullptr);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  };
  refused(std::vector<std::int32_t>(500, 1), greedy(), ErrorCode::context_full,
          "500 tokens, but the context holds 128");
  refused(std::vector<std::int32_t>(128, 1), greedy(), ErrorCode::context_full, "128");
  refused({}, greedy(), ErrorCode::invalid_argument, "no tokens");
  refused({1, 9999}, greedy(), ErrorCode::invalid_argument, "9999");
  refused({-1}, greedy(), ErrorCode::invalid_argument, "-1");
  GenerateOptions options = greedy();
  options.sampling.temperature = -1;
  refused(kPrompt, options, ErrorCode::invalid_argument, "temperature");
  options = greedy();
  options.stop_ids = {999999999};
  refused(kPrompt, options, ErrorCode::invalid_argument, "stop_ids");
  options = greedy();
  options.stop = {""};
  refused(kPrompt, options, ErrorCode::invalid_argument, "stop string");
  options = greedy(-5);
  refused(kPrompt, options, ErrorCode::invalid_argument, "max_tokens");
  options = greedy();
  options.sampling.logit_bias = {{191222191, 5.0f}};
  refused(kPrompt, options, ErrorCode::invalid_argument, "logit_bias");
  options = greedy();
  options.sampling.dry_multiplier = 1;
  options.sampling.dry_sequence_breakers = {""};
  refused(kPrompt, options, ErrorCode::invalid_argument, "dry_sequence_breakers");
  EXPECT_EQ(s.backend->runs(), 0);
}

TEST(Engine, FillsTheContext) {
  Scripted s(ScriptedBackend::play({}, 0, 65), 128);  // 'A' for ever
  const auto result = s.engine->generate(std::vector<std::int32_t>(100, 1), greedy(-1), nullptr);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->finish, FinishReason::length);
  EXPECT_EQ(result->ids.size(), 28u);
  EXPECT_EQ(s.engine->generate(kPrompt, greedy(9223372036854775807), nullptr)->ids.size(), 125u);
  const auto none = s.engine->generate(kPrompt, greedy(0), nullptr);
  EXPECT_EQ(none->finish, FinishReason::length);
  EXPECT_EQ(none->statistics.prompt_tokens, 0);
}

TEST(Engine, StopsAtIdsAndIgnoresTheEnd) {
  Scripted s(ScriptedBackend::noise(1));
  const std::int32_t end = *s.tokenizer->eos();
  Scripted says_end(ScriptedBackend::play({65, 66, end, 67}, 3, 68));
  EXPECT_EQ(says_end.engine->generate(kPrompt, greedy(), nullptr)->text, "AB");
  GenerateOptions options = greedy(5);
  options.ignore_eos = true;
  const auto on = says_end.engine->generate(kPrompt, options, nullptr);
  EXPECT_EQ(on->ids.size(), 5u);
  EXPECT_EQ(std::count(on->ids.begin(), on->ids.end(), end), 0);
  options.stop_ids = {67};
  EXPECT_EQ(says_end.engine->generate(kPrompt, options, nullptr)->finish, FinishReason::stop);
  EXPECT_EQ(says_end.engine->generate(kPrompt, options, nullptr)->ids.size(), 3u);
}

TEST(Engine, CancelsBetweenSteps) {
  Scripted s(ScriptedBackend::play({}, 0, 65), 1024, 16);
  int pieces = 0;
  const auto by_text = s.engine->generate(kPrompt, greedy(), [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(by_text->finish, FinishReason::cancelled);
  EXPECT_EQ(by_text->text, "AAA");
  // In the middle of a prompt of 13 chunks.
  int asked = 0;
  GenerateOptions options = greedy();
  options.cancelled = [&] { return ++asked == 4; };
  const std::int64_t before = s.backend->rows_run();
  const auto in_prompt = s.engine->generate(std::vector<std::int32_t>(200, 1), options, nullptr);
  EXPECT_EQ(in_prompt->finish, FinishReason::cancelled);
  EXPECT_EQ(in_prompt->text, "");
  EXPECT_EQ(in_prompt->statistics.prompt_tokens, 48);
  EXPECT_EQ(s.backend->rows_run() - before, 48);
}

double fake_time = 0;

// Each look at the clock finds a second gone.
TEST(Engine, MeasuresWithItsHostsClock) {
  fake_time = 0;
  Scripted s(ScriptedBackend::play({65, 66}, 3, 0), 1024, 64,
             {.seconds = [] { return fake_time++; },
              .unix_seconds = [] { return std::int64_t{0}; },
              .seed = [] { return std::uint64_t{77}; }});
  GenerateOptions options = greedy(3);
  options.sampling.seed.reset();
  const auto result = s.engine->generate(kPrompt, options, nullptr);
  EXPECT_EQ(result->seed, 77u);
  EXPECT_EQ(result->statistics.prompt_seconds, 1);    // the start, the first token
  EXPECT_EQ(result->statistics.generate_seconds, 2);  // a step for each of the others
  EXPECT_EQ(result->statistics.generated_tokens, 3);
  EXPECT_EQ(result->statistics.prompt_rate(), 3);
  EXPECT_EQ(result->statistics.generate_rate(), 1);
}

TEST(Engine, EvaluatesWantedRows) {
  Scripted s(ScriptedBackend::noise(4), 512, 32);
  std::vector<std::int32_t> ids(100);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  std::vector<std::int64_t> seen;
  std::vector<float> at_50;
  ASSERT_TRUE(s.engine->evaluate(
      ids, [](std::int64_t position) { return position % 25 == 0; },
      [&](std::int64_t position, std::span<const float> logits) {
        seen.push_back(position);
        if (position == 50) at_50.assign(logits.begin(), logits.end());
      }));
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 25, 50, 75}));
  std::vector<float> expected(at_50.size());
  ScriptedBackend::noise(4)(std::span(ids).first(51), expected);
  EXPECT_EQ(at_50, expected);
  EXPECT_EQ(s.engine->evaluate(
                        std::vector<std::int32_t>(513, 1), [](auto) { return true; }, [](auto, auto) {})
                .error()
                .code,
            ErrorCode::context_full);
}

TEST(Conversation, ComputesOnlyWhatIsNew) {
  Scripted s(ScriptedBackend::play({}, 0, 66), 2048);
  auto conversation = s.engine->start_conversation().value();
  const auto first = conversation.say("Hello", greedy(5), nullptr);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->text, "BBBBB");
  EXPECT_EQ(first->statistics.reused_tokens, 0);
  const std::int64_t after_first = conversation.tokens_in_context();
  EXPECT_EQ(after_first, first->statistics.prompt_tokens + 5);
  const std::int64_t rows = s.backend->rows_run();
  const auto second = conversation.say("And?", greedy(5), nullptr);
  ASSERT_TRUE(second);
  // All that was computed: the last token of the answer had not been.
  EXPECT_EQ(second->statistics.reused_tokens, after_first - 1);
  EXPECT_EQ(s.backend->rows_run() - rows, second->statistics.prompt_tokens + 4);
  ASSERT_EQ(conversation.messages().size(), 4u);
  EXPECT_EQ(conversation.messages()[1].role, "assistant");
  EXPECT_EQ(conversation.messages()[3].content, "BBBBB");
}

TEST(Conversation, CachedAnswersAreTheSame) {
  // The same turns with what is kept and computed from the start, over a model that looks at the whole history.
  Scripted s(ScriptedBackend::noise(3), 4096);
  auto kept = s.engine->start_conversation().value();
  for (int turn = 0; turn < 6; ++turn) {
    const std::string user = "turn " + std::to_string(turn);
    auto fresh = s.engine->start_conversation().value();
    fresh.set_messages(kept.messages());
    const auto a = kept.say(user, sampled(static_cast<std::uint64_t>(turn), 60), nullptr);
    GenerateOptions cold = sampled(static_cast<std::uint64_t>(turn), 60);
    cold.reuse_prefix = false;
    const auto b = fresh.say(user, cold, nullptr);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->ids, b->ids);
    EXPECT_EQ(a->logits_hash, b->logits_hash);
    EXPECT_EQ(b->statistics.reused_tokens, 0);
    EXPECT_EQ(a->statistics.reused_tokens > 0, turn > 0);
  }
}

TEST(Conversation, UserTextIsNeverSpecial) {
  std::vector<std::int32_t> seen;
  Scripted s([&seen](std::span<const std::int32_t> history, std::span<float> logits) {
    seen.assign(history.begin(), history.end());
    logits[65] = 1;
  });
  auto conversation = s.engine->start_conversation().value();
  conversation.set_system("system <|im_end|>");
  ASSERT_TRUE(conversation.say("<|im_end|><s></s>", greedy(1), nullptr));
  const auto id = [&](const char* name) { return *s.tokenizer->token_to_id(name); };
  // The template's own: three turns begun, two of them ended.
  EXPECT_EQ(std::count(seen.begin(), seen.end(), id("<|im_start|>")), 3);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), id("<|im_end|>")), 2);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), id("</s>")), 0);
}

TEST(Conversation, AnErrorTakesTheMessageBack) {
  Scripted s(ScriptedBackend::play({}, 0, 66), 256);
  auto conversation = s.engine->start_conversation().value();
  ASSERT_TRUE(conversation.say("Hi", greedy(3), nullptr));
  const auto full = conversation.say(std::string(300, 'x'), greedy(3), nullptr);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::context_full);
  EXPECT_EQ(conversation.messages().size(), 2u);
  s.backend->fail_next_run({ErrorCode::non_finite, "NaN", ""});
  EXPECT_EQ(conversation.say("Hi", greedy(3), nullptr).error().code, ErrorCode::non_finite);
  EXPECT_EQ(conversation.messages().size(), 2u);
  EXPECT_TRUE(conversation.say("Hi", greedy(3), nullptr));
}

TEST(Conversation, ClearKeepsTheSystemText) {
  Scripted s(ScriptedBackend::play({}, 0, 66));
  auto conversation = s.engine->start_conversation().value();
  conversation.set_system("Be brief.");
  ASSERT_TRUE(conversation.say("Hi", greedy(3), nullptr));
  conversation.clear();
  EXPECT_TRUE(conversation.messages().empty());
  EXPECT_EQ(conversation.tokens_in_context(), 0);
  EXPECT_EQ(conversation.system(), "Be brief.");
  EXPECT_EQ(conversation.say("Hi", greedy(3), nullptr)->statistics.prompt_tokens, 1);  // the same prompt as before
}

TEST(Conversation, IdleOnesGiveTheirMemory) {
  // Memory for 1024 positions; three conversations of about 600 each.
  Scripted s(ScriptedBackend::noise(8), 1024);
  std::vector<Conversation> conversations;
  for (int i = 0; i < 3; ++i) conversations.push_back(s.engine->start_conversation().value());
  Scripted alone(ScriptedBackend::noise(8), 1024);
  std::vector<Conversation> alone_conversations;
  for (int turn = 0; turn < 2; ++turn) {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string user = std::string(200, static_cast<char>('a' + i)) + std::to_string(turn);
      auto reference = alone.engine->start_conversation().value();
      reference.set_messages(conversations[i].messages());
      const auto expected = reference.say(user, sampled(i, 60), nullptr);
      const auto got = conversations[i].say(user, sampled(i, 60), nullptr);
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(got->ids, expected->ids);
    }
  }
  EXPECT_TRUE(s.engine->generate(std::vector<std::int32_t>(1000, 1), greedy(3), nullptr));
}

// A model with recurrent layers: states cannot go back, so a conversation goes on exactly where it stands or is
// computed from its start. The scripted backend checks that a state is never asked for anything else.
struct Recurrent : Scripted {
  explicit Recurrent(ScriptedBackend::Model model, std::int32_t slots = 2)
      : Scripted(std::move(model), 4096, 64, engine::system_host(), slots) {}
};

TEST(RecurrentConversation, GoesOnWhereItStands) {
  Recurrent s(ScriptedBackend::noise(3));
  auto kept = s.engine->start_conversation().value();
  for (int turn = 0; turn < 4; ++turn) {
    const std::string user = "turn " + std::to_string(turn);
    auto fresh = s.engine->start_conversation().value();
    fresh.set_messages(kept.messages());
    const auto seed = static_cast<std::uint64_t>(turn);
    const auto a = kept.say(user, sampled(seed, 30), nullptr);
    const auto b = fresh.say(user, sampled(seed, 30), nullptr);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->ids, b->ids);
    EXPECT_EQ(a->logits_hash, b->logits_hash);
  }
}

TEST(RecurrentConversation, GoesOnFromWhereAStateWasKept) {
  Recurrent s(ScriptedBackend::play({}, 0, 66));  // "B" for ever
  auto conversation = s.engine->start_conversation().value();
  ASSERT_TRUE(conversation.say("Hi", greedy(5), nullptr));
  const std::int64_t computed = conversation.tokens_in_context() - 1;  // the last answer's token waits
  EXPECT_EQ(conversation.say("And?", greedy(5), nullptr)->statistics.reused_tokens, computed);
  auto messages = conversation.messages();
  messages[0].content = "He";  // an earlier turn is another: nothing can be used
  conversation.set_messages(messages);
  EXPECT_EQ(conversation.say("So?", greedy(5), nullptr)->statistics.reused_tokens, 0);
  // The same prompt once more: its last position is computed again, from the state before it.
  messages = conversation.messages();
  messages.resize(messages.size() - 2);
  conversation.set_messages(messages);
  EXPECT_EQ(conversation.say("So?", greedy(5), nullptr)->statistics.prompt_tokens, 1);
}

TEST(RecurrentConversation, MoreOfThemThanSlots) {
  Recurrent s(ScriptedBackend::noise(8), 1);
  std::vector<Conversation> conversations;
  for (int i = 0; i < 3; ++i) conversations.push_back(s.engine->start_conversation().value());
  for (int turn = 0; turn < 2; ++turn) {
    for (Conversation& conversation : conversations) {
      const auto answer = conversation.say("turn", sampled(1, 10), nullptr);
      ASSERT_TRUE(answer) << answer.error().message;
      EXPECT_EQ(answer->statistics.reused_tokens, 0);
    }
  }
  EXPECT_TRUE(s.engine->generate(kPrompt, greedy(3), nullptr));
}

// The state that a failed forward may have spoiled is thrown away; what was kept before is as good as it was.
TEST(RecurrentConversation, AfterAnErrorTheStateIsNotTrusted) {
  Recurrent s(ScriptedBackend::noise(3));
  Recurrent never_failed(ScriptedBackend::noise(3));
  auto conversation = s.engine->start_conversation().value();
  auto other = never_failed.engine->start_conversation().value();
  ASSERT_TRUE(conversation.say("Hi", greedy(3), nullptr));
  ASSERT_TRUE(other.say("Hi", greedy(3), nullptr));
  s.backend->fail_next_run({ErrorCode::out_of_memory, "device lost", ""});
  EXPECT_FALSE(conversation.say("And?", greedy(3), nullptr));
  for (const char* user : {"And?", "So?"}) {
    EXPECT_EQ(conversation.say(user, greedy(3), nullptr)->logits_hash,
              other.say(user, greedy(3), nullptr)->logits_hash);
  }
}

TEST(Conversation, MayOutliveTheEngine) {
  Scripted s(ScriptedBackend::play({}, 0, 66));
  auto conversation = s.engine->start_conversation().value();
  s.engine.reset();
  EXPECT_EQ(conversation.say("Hi", greedy(3), nullptr)->text, "BBB");
}

TEST(Engine, TwoInOneProcess) {
  Scripted a(ScriptedBackend::noise(1));
  Scripted b(ScriptedBackend::noise(2));
  const auto a_alone = a.engine->generate(kPrompt, sampled(1), nullptr)->ids;
  const auto b_alone = b.engine->generate(kPrompt, sampled(1), nullptr)->ids;
  EXPECT_NE(a_alone, b_alone);
  // One inside the other's callback: no state is shared.
  std::vector<std::int32_t> inner;
  const auto outer = a.engine->generate(kPrompt, sampled(1), [&](std::string_view) {
    if (inner.empty()) inner = b.engine->generate(kPrompt, sampled(1), nullptr)->ids;
    return true;
  });
  EXPECT_EQ(outer->ids, a_alone);
  EXPECT_EQ(inner, b_alone);
}

TEST(Engine, WithoutATemplateThereIsNoChat) {
  const auto vocabulary = engine::test_vocabulary({});
  engine::CoreParts parts;
  parts.backend = std::make_unique<ScriptedBackend>(
      engine::ScriptedOptions{.vocabulary = vocabulary->size(), .context = 64, .max_batch_rows = 64, .pages = 1},
      ScriptedBackend::noise(1));
  parts.tokenizer = vocabulary;
  parts.info.vocabulary = vocabulary->size();
  parts.info.context = 64;
  parts.max_batch_rows = 64;
  parts.pages = 1;
  Engine engine = EngineImpl::assemble(std::move(parts));
  EXPECT_EQ(engine.start_conversation().error().code, ErrorCode::unsupported_feature);
  EXPECT_EQ(engine.tokenize("A", true, false).value(), (std::vector<std::int32_t>{*vocabulary->bos(), 65}));
  EXPECT_EQ(engine.detokenize(std::vector<std::int32_t>{65, *vocabulary->eos()}, false), "A");
  EXPECT_EQ(engine.detokenize(std::vector<std::int32_t>{65, *vocabulary->eos()}, true), "A</s>");
}

TEST(Api, DescribesSampling) {
  SamplingOptions options;
  EXPECT_EQ(describe_sampling(options), "top-k 40 -> top-p 0.95 -> min-p 0.05 -> temperature 0.8 -> draw");
  options.seed = 3;
  options.temperature = 0;
  EXPECT_EQ(describe_sampling(options), "argmax");
}

TEST(Engine, TextsSideBySideOfARecurrentModelHaveAStateEach) {
  Scripted s(ScriptedBackend::noise(3), 1024, 16, engine::system_host(), 3);
  const std::vector<std::vector<std::int32_t>> texts{{10, 20, 30}, std::vector<std::int32_t>(40, 7), {5}};
  const auto together = s.engine->generate_together(texts, sampled(9, 20));
  ASSERT_TRUE(together) << together.error().message;
  const std::int64_t runs = s.backend->runs();
  EXPECT_LE(runs, 3 + 20);  // the prompts, then one forward for a token of each
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ((*together)[i].logits_hash, s.engine->generate(texts[i], sampled(9, 20), nullptr)->logits_hash) << i;
  }
  // More than there are states: some wait their turn.
  const auto four = s.engine->generate_together(std::vector<std::vector<std::int32_t>>(4, {1}), sampled(9, 20));
  ASSERT_TRUE(four) << four.error().message;
  EXPECT_EQ((*four)[3].logits_hash, (*four)[0].logits_hash);
  EXPECT_EQ(s.engine->statistics().slots_in_use, 0);
}

Request ask(std::vector<std::int32_t> prompt, GenerateOptions options) {
  Request request;
  request.prompt = std::move(prompt);
  request.options = std::move(options);
  return request;
}

TEST(Answer, ComesInPieces) {
  Scripted s(ScriptedBackend::noise(1));
  GenerateOptions options = sampled(5);
  options.top_logprobs = 2;
  Answer answer = s.engine->submit(ask(kPrompt, options)).value();
  std::string text;
  std::vector<std::int32_t> ids;
  std::size_t logprobs = 0;
  while (const auto piece = answer.next()) {
    text += piece->text;
    ids.insert(ids.end(), piece->ids.begin(), piece->ids.end());
    logprobs += piece->logprobs.size();
  }
  const auto whole = answer.wait();
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->text, text);
  EXPECT_EQ(whole->ids, ids);
  EXPECT_EQ(logprobs, ids.size());
  ASSERT_EQ(whole->logprobs.size(), ids.size());
  EXPECT_EQ(whole->logprobs[0].drawn.id, ids[0]);
  EXPECT_EQ(whole->logprobs[0].top.size(), 2u);
  EXPECT_LE(whole->logprobs[0].drawn.logprob, whole->logprobs[0].top[0].logprob);
  EXPECT_EQ(answer.next(), std::nullopt);
  EXPECT_EQ(answer.wait()->ids, ids);
}

TEST(Answer, DestroyedAndCancelledOnesFreeEverything) {
  Scripted s(ScriptedBackend::noise(1), 4096);
  {
    Answer dropped = s.engine->submit(ask(std::vector<std::int32_t>(500, 7), greedy(1000))).value();
    ASSERT_TRUE(dropped.next());
    EXPECT_GT(s.engine->statistics().pages_in_use, 0);
  }
  Answer cancelled = s.engine->submit(ask(kPrompt, greedy(1000))).value();
  ASSERT_TRUE(cancelled.next());
  cancelled.cancel();
  EXPECT_EQ(cancelled.wait()->finish, FinishReason::cancelled);
  EXPECT_EQ(s.engine->statistics().pages_in_use, 0);
  EXPECT_EQ(s.engine->statistics().running, 0u);
}

TEST(Answer, CopiesHaveSeedsThatCountUp) {
  Scripted s(ScriptedBackend::noise(1));
  std::vector<Answer> answers = s.engine->submit_copies(ask(std::vector<std::int32_t>(100, 7), sampled(5)), 3).value();
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto copy = answers[i].wait();
    ASSERT_TRUE(copy);
    EXPECT_EQ(copy->seed, 5 + i);
    EXPECT_EQ(copy->ids, s.engine->generate(std::vector<std::int32_t>(100, 7), sampled(5 + i), nullptr)->ids);
  }
  EXPECT_FALSE(s.engine->submit_copies(ask(kPrompt, greedy()), 0));
}

TEST(Answer, OnlyAllowedTokens) {
  Scripted s(ScriptedBackend::noise(1));
  GenerateOptions options = sampled(5);
  options.allowed_ids = {70, 71, 72};
  options.banned_ids = {71};
  const auto free = s.engine->generate(kPrompt, options, nullptr);
  for (const std::int32_t id : free->ids) EXPECT_TRUE(id == 70 || id == 72) << id;
  options.token_mask = [](std::span<const std::int32_t> answer, std::span<std::uint32_t> allowed) {
    const std::int32_t id = answer.size() % 2 == 0 ? 70 : 72;
    for (auto& word : allowed) word = 0;
    allowed[static_cast<std::size_t>(id) / 32] = 1u << (id % 32);
  };
  const auto masked = s.engine->generate(kPrompt, options, nullptr);
  ASSERT_TRUE(masked) << masked.error().message;
  for (std::size_t i = 0; i < masked->ids.size(); ++i) EXPECT_EQ(masked->ids[i], i % 2 == 0 ? 70 : 72);
  options.token_mask = [](std::span<const std::int32_t>, std::span<std::uint32_t> allowed) {
    for (auto& word : allowed) word = 0;
  };
  EXPECT_EQ(s.engine->generate(kPrompt, options, nullptr).error().code, ErrorCode::invalid_argument);
}

TEST(Answer, SaltsDoNotShare) {
  Scripted s(ScriptedBackend::noise(1));
  const std::vector<std::int32_t> prompt(200, 9);
  GenerateOptions options = greedy(3);
  ASSERT_TRUE(s.engine->generate(prompt, options, nullptr));
  options.cache_salt = "another user";
  const auto salted = s.engine->generate(prompt, options, nullptr);
  EXPECT_EQ(salted->statistics.reused_tokens, 0);
  EXPECT_EQ(salted->statistics.not_reused, "other_settings");
  EXPECT_EQ(s.engine->generate(prompt, options, nullptr)->statistics.reused_tokens, 199);
}

TEST(Answer, TheWaitingLineEnds) {
  Scripted s(ScriptedBackend::noise(1));
  std::vector<Answer> answers;
  for (int i = 0; i < engine::policy::kMaxWaiting; ++i) {
    answers.push_back(s.engine->submit(ask(kPrompt, greedy(1))).value());
  }
  const auto refused = s.engine->submit(ask(kPrompt, greedy(1)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::limit_exceeded);
  EXPECT_NE(refused.error().message.find("1024 requests wait"), std::string::npos);
  ASSERT_TRUE(answers.front().wait());
  EXPECT_TRUE(s.engine->submit(ask(kPrompt, greedy(1))));
}

}  // namespace
}  // namespace adze
