// Many threads at one engine, and what it keeps. Run under ThreadSanitizer by `./dev sanitize tsan`.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "adze/adze.hpp"
#include "engine/api_impl.hpp"
#include "engine/policy.hpp"
#include "engine/scripted_backend.hpp"
#include "engine/test_vocabulary.hpp"
#include "speculate/ngram_drafter.hpp"

namespace adze {
namespace {

using engine::ScriptedBackend;

Engine scripted(std::int32_t slots, std::int64_t context = 512) {
  engine::CoreParts parts;
  parts.tokenizer = engine::test_vocabulary({});
  parts.pages = 24;
  parts.slots = slots;
  parts.backend =
      std::make_unique<ScriptedBackend>(engine::ScriptedOptions{.vocabulary = parts.tokenizer->size(),
                                                                .context = context,
                                                                .max_batch_rows = 32,
                                                                .pages = parts.pages,
                                                                .slots = slots},
                                        ScriptedBackend::play({65, 66, 67, 65, 66, 67, 65, 66, 67, 65, 66, 67}, 3, 70));
  parts.drafter = std::make_unique<speculate::NgramDrafter>(slots > 0 ? speculate::DraftRules::recurrent()
                                                                      : speculate::DraftRules::attention());
  parts.info.vocabulary = parts.tokenizer->size();
  parts.info.context = context;
  parts.max_batch_rows = 32;
  return EngineImpl::assemble(std::move(parts));
}

Request ask(std::int32_t first, std::int64_t max_tokens) {
  Request request;
  request.prompt = {first, 2, 3};
  request.options.sampling.temperature = 0;
  request.options.max_tokens = max_tokens;
  return request;
}

TEST(Desk, EightThreadsSubmitReadAndDrop) {
  for (const std::int32_t slots : {0, 3}) {
    Engine engine = scripted(slots);
    const auto expected = engine.generate(ask(1, 30).prompt, ask(1, 30).options, nullptr).value();
    std::atomic<int> answered = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 12; ++i) {
          auto answer = engine.submit(ask(1 + (t + i) % 5, 30));
          ASSERT_TRUE(answer) << answer.error().message;
          switch ((t + i) % 4) {
            case 0: continue;  // dropped unread
            case 1: {
              ASSERT_TRUE(answer->next());
              answer->cancel();
              const auto cancelled = answer->wait();
              ASSERT_TRUE(cancelled);
              break;
            }
            default: {
              const auto whole = answer->wait();
              ASSERT_TRUE(whole) << whole.error().message;
              EXPECT_EQ(whole->ids, expected.ids);
              ++answered;
            }
          }
          if (i % 5 == 0) {
            EXPECT_GE(engine.statistics().pages, engine.statistics().pages_in_use);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(answered, 48);
    const EngineStatistics statistics = engine.statistics();
    EXPECT_EQ(statistics.pages_in_use, 0);
    EXPECT_EQ(statistics.slots_in_use, 0);
    EXPECT_EQ(statistics.running + statistics.waiting, 0u);
    // Whether a thread hit what another one left is the scheduler's to say; now nobody is in the way.
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(engine.generate(ask(1, 30).prompt, ask(1, 30).options, nullptr)->ids, expected.ids);
    }
    EXPECT_GT(engine.statistics().prefix_hits, statistics.prefix_hits);
  }
}

// An answer may be cancelled by another thread than the one that waits for it.
TEST(Desk, AnotherThreadCancels) {
  Engine engine = scripted(0, 1 << 20);
  Answer endless = engine.submit(ask(1, -1)).value();
  std::thread other([&] { endless.cancel(); });
  EXPECT_NE(endless.wait()->finish, FinishReason::error);
  other.join();
}

// Answers that nobody reads do not fill the waiting line, nor keep pages.
TEST(Desk, DroppedAnswersAreGoneAtOnce) {
  Engine engine = scripted(0);
  for (int i = 0; i < 2 * engine::policy::kMaxWaiting; ++i) ASSERT_TRUE(engine.submit(ask(1, 5)));
  {
    Request request = ask(1, 100);
    request.prompt.assign(300, 7);
    Answer begun = engine.submit(request).value();
    ASSERT_TRUE(begun.next());
    EXPECT_GT(engine.statistics().pages_in_use, 0);
  }
  Answer waiting = engine.submit(ask(1, 5)).value();
  EXPECT_EQ(engine.statistics().pages_in_use, 0);
  EXPECT_EQ(engine.statistics().waiting, 1u);
  EXPECT_TRUE(waiting.wait());
}

TEST(Desk, AMaskThatThrowsEndsItsRequest) {
  Engine engine = scripted(0);
  Request request = ask(1, 5);
  request.options.token_mask = [](std::span<const std::int32_t>, std::span<std::uint32_t>) {
    throw std::runtime_error("no grammar");
  };
  EXPECT_NE(engine.submit(request)->wait().error().message.find("no grammar"), std::string::npos);
  EXPECT_TRUE(engine.submit(ask(1, 5))->wait());
}

TEST(Desk, DeadlinesAreOfNow) {
  Engine engine = scripted(0);
  Request request = ask(1, 5);
  request.finish_within_seconds = 0.02;
  Answer late = engine.submit(request).value();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(late.wait().error().code, ErrorCode::timed_out);
}

// Who asks something of the engine comes between two steps, however many there are.
TEST(Desk, StepsLeaveRoomForOthers) {
  Engine engine = scripted(0, 1 << 20);
  std::atomic<bool> enough = false;
  std::thread reader([&] {
    Request request = ask(1, 1);
    request.prompt.assign(1200, 5);  // tens of steps without an event
    while (!enough) {
      request.prompt[0] = (request.prompt[0] + 1) % 250;
      ASSERT_TRUE(engine.submit(request)->wait());
    }
  });
  std::int64_t steps = 0;
  for (int i = 0; i < 200; ++i) {
    const EngineStatistics now = engine.statistics();
    EXPECT_GE(now.steps, steps);
    EXPECT_LE(now.running + now.waiting, 1u);
    steps = now.steps;
  }
  enough = true;
  reader.join();
  EXPECT_EQ(engine.statistics().pages_in_use, 0);
}

[[maybe_unused]] std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

TEST(Desk, ManyShortRequestsLeaveNothing) {
  Engine engine = scripted(2);
  const auto some = [&](int count, int from) {
    for (int i = from; i < from + count; ++i) {
      Request request = ask(i % 200, 4);
      request.prompt = {i % 251, i / 251 % 251, i / 63001 % 251};  // each is new, so that the index has to forget
      ASSERT_TRUE(engine.generate(request.prompt, request.options, nullptr));
    }
  };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  some(1'000, 0);  // sanitizers keep books that grow; the test above is theirs
#else
  some(20'000, 0);
  const std::int64_t before = resident_bytes();
  EXPECT_GT(before, 0);
  some(100'000, 20'000);
  EXPECT_LE(resident_bytes() - before, 1 << 20);
#endif
}

}  // namespace
}  // namespace adze
