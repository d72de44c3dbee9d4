// Gated DeltaNet on the CPU against its definition: odd head sizes, every kernel table, and the same bits for every cut
// of the rows, number of threads and company in the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_features.hpp"
#include "base/limits.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/owned_weight.hpp"

namespace adze::cpu {
namespace {

struct Case {
  ops::DeltaHeads heads;
  int kernel;
};

std::vector<float> noise(std::int64_t count, unsigned seed, float mean, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = normal(random);
  return values;
}

// Tokens are rows of a table of random projections; what DeltaOut writes is the model's hidden state.
struct DeltaModel {
  static constexpr int kVocabulary = 64;
  explicit DeltaModel(const Case& c)
      : width(c.heads.value_heads * c.heads.value_size),
        table(kVocabulary, c.heads.projected(), noise(std::int64_t{kVocabulary} * c.heads.projected(), 1, 0, 1)),
        convolution(c.heads.channels(), c.kernel, noise(std::int64_t{c.heads.channels()} * c.kernel, 2, 0, 0.6f)),
        rate(noise(c.heads.value_heads, 3, -0.4f, 0.1f)),
        dt_bias(noise(c.heads.value_heads, 4, 0, 1)),
        norm(noise(c.heads.value_size, 5, 1, 0.2f)),
        head(kVocabulary, width, noise(std::int64_t{kVocabulary} * width, 6, 0, 1)) {
    const ops::DeltaHeads& h = c.heads;
    plan.hidden_size = width;
    plan.vocabulary_size = kVocabulary;
    plan.context_length = 1024;
    plan.buffers = {{"mixed", h.projected()}, {"prepared", h.prepared()}, {"scanned", width}, {"out", width}};
    plan.state_layers = {{h.channels(), c.kernel, h.value_heads, h.key_size, h.value_size}};
    plan.steps = {ops::Embed{.table = table.ref(), .out = 0},
                  ops::DeltaPrep{.heads = h,
                                 .convolution = convolution.ref(),
                                 .rate = rate.ref(),
                                 .dt_bias = dt_bias.ref(),
                                 .query_scale = 1 / std::sqrt(static_cast<float>(h.key_size)),
                                 .in = 0,
                                 .out = 1},
                  ops::DeltaScan{.heads = h, .in = 1, .out = 2},
                  ops::DeltaOut{.heads = h, .norm = {.weight = norm.ref()}, .in = 2, .gate = 0, .out = 3},
                  ops::Head{.norm = {}, .weight = head.ref(), .in = 3}};
    plan.step_layers = {-1, 0, 0, 0, -1};
  }
  int width;
  test::OwnedWeight table, convolution, rate, dt_bias, norm, head;
  ops::Plan plan;
};

std::vector<std::int32_t> some_tokens(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % DeltaModel::kVocabulary);
  return tokens;
}

// One sequence of a batch: its next tokens, from `position` on.
struct Piece {
  std::span<const std::int32_t> tokens;
  std::int32_t position, slot;
  std::int32_t replay = 0, certain = 1000;
};

struct Machine {
  Machine(const DeltaModel& model, const char* table, int threads, int slots = 1) : width(model.plan.vocabulary_size) {
    prepared = backend::prepare(model.plan,
                                {.kernel_set = table, .threads = threads, .max_batch_rows = 128, .max_slots = slots})
                   .value();
  }
  Status try_run(const std::vector<Piece>& pieces) {
    std::vector<backend::Row> rows;
    std::vector<backend::SequencePages> sequences;
    for (const Piece& piece : pieces) {
      std::int32_t position = piece.position;
      for (const std::int32_t token : piece.tokens) {
        rows.push_back({token, static_cast<std::int32_t>(sequences.size()), position++, true});
      }
      sequences.push_back({.full = {}, .slot = piece.slot, .replay = piece.replay, .certain = piece.certain});
    }
    return prepared->run({rows, sequences});
  }
  // The logits of all rows.
  std::vector<float> run(const std::vector<Piece>& pieces) {
    const Status status = try_run(pieces);
    EXPECT_TRUE(status) << status.error().message;
    std::size_t rows = 0;
    for (const Piece& piece : pieces) rows += piece.tokens.size();
    std::vector<float> out;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto logits = prepared->logits(static_cast<int>(r));
      out.insert(out.end(), logits.begin(), logits.end());
    }
    return out;
  }
  int width;
  std::unique_ptr<backend::Prepared> prepared;
};

class DeltaNetTest : public ::testing::TestWithParam<Case> {
 protected:
  DeltaModel model{GetParam()};
  const std::vector<std::int32_t> tokens = some_tokens(75, 9);
  std::vector<float> whole() { return Machine(model, "scalar", 1).run({{tokens, 0, 0}}); }
};

TEST_P(DeltaNetTest, EqualsItsDefinitionBitForBitOnEveryTable) {
  const auto expected = ops::ref::Interpreter(model.plan).run(tokens, static_cast<int>(tokens.size())).values;
  double largest = 0;
  for (const float x : expected) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  const std::vector<float> scalar = whole();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(scalar[i], expected[i], 3e-6 * largest) << "row " << i / DeltaModel::kVocabulary;
  }
  for (const KernelTable* table : available_tables()) {
    EXPECT_TRUE(Machine(model, table->name, 1).run({{tokens, 0, 0}}) == scalar) << table->name;
  }
}

TEST_P(DeltaNetTest, BitsDoNotDependOnThreadsOrChunks) {
  const std::vector<float> expected = whole();
  constexpr std::pair<int, int> kThreadsAndChunk[] = {{2, 1}, {3, 2}, {5, 7}, {1, 64}, {4, 75}};
  for (const auto& [threads, chunk] : kThreadsAndChunk) {
    Machine machine(model, "", threads);
    std::vector<float> out;
    for (int first = 0; first < static_cast<int>(tokens.size()); first += chunk) {
      const auto count =
          std::min<std::size_t>(static_cast<std::size_t>(chunk), tokens.size() - static_cast<std::size_t>(first));
      const auto part = machine.run({{std::span(tokens).subspan(static_cast<std::size_t>(first), count), first, 0}});
      out.insert(out.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(out == expected) << threads << " threads, chunks of " << chunk;
  }
}

TEST_P(DeltaNetTest, SequencesKeepToTheirSlotsAndBeginAgainFromZero) {
  const std::vector<float> expected = whole();
  const std::vector<std::int32_t> other = some_tokens(40, 10);
  Machine machine(model, "", 3, 3);
  const auto vocabulary = static_cast<std::size_t>(DeltaModel::kVocabulary);
  (void)machine.run({{std::span(other).first(5), 0, 1}});  // leaves something in the slot
  std::vector<float> out;
  const auto mine = [&](std::vector<float> all, std::size_t first, std::size_t count) {
    out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(first * vocabulary),
               all.begin() + static_cast<std::ptrdiff_t>((first + count) * vocabulary));
  };
  const auto part = [&](std::size_t first, std::size_t count) { return std::span(tokens).subspan(first, count); };
  mine(machine.run({{std::span(other).first(9), 0, 2}, {part(0, 2), 0, 1}, {std::span(other).first(1), 0, 0}}), 9, 2);
  mine(machine.run({{part(2, 1), 2, 1}, {std::span(other).subspan(9, 1), 9, 2}}), 0, 1);
  mine(machine.run({{std::span(other).subspan(1, 30), 1, 0}, {part(3, 72), 3, 1}}), 30, 72);
  EXPECT_TRUE(out == expected);
}

// Batches with every number of replayed, certain and uncertain rows; wrong rows leave nothing behind.
TEST_P(DeltaNetTest, UncertainRowsAreReplayedWithTheSameBits) {
  const std::vector<float> expected = whole();
  const auto vocabulary = static_cast<std::size_t>(DeltaModel::kVocabulary);
  for (const KernelTable* table : available_tables()) {
    for (const unsigned seed : {1u, 2u, 3u, 4u}) {
      std::mt19937 random(seed);
      const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
      Machine machine(model, table->name, 1 + static_cast<int>(seed) % 3, 3);
      const std::vector<std::int32_t> other = some_tokens(30, seed);
      int position = 0, replay = 0, slot = 1;
      while (position < static_cast<int>(tokens.size())) {
        const int left = static_cast<int>(tokens.size()) - position;
        const int certain = std::min(left, below(4)), drafts = below(limits::kMaxDraft + 1);
        if (certain + drafts == 0) continue;
        const int accepted = std::min({left - certain, drafts, below(limits::kMaxDraft + 1)});
        std::vector<std::int32_t> rows(tokens.begin() + position, tokens.begin() + position + certain + accepted);
        while (static_cast<int>(rows.size()) < certain + drafts) rows.push_back(below(DeltaModel::kVocabulary));
        const Piece mine{rows, position, slot, replay, certain};
        const bool alone = below(2) == 0;
        const std::vector<float> out =
            alone ? machine.run({mine}) : machine.run({mine, {std::span(other).first(5), 0, 0, 0, below(6)}});
        const auto count = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(certain + accepted) * vocabulary);
        ASSERT_TRUE(
            std::equal(out.begin(), out.begin() + count,
                       expected.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(position) * vocabulary)))
            << table->name << ", seed " << seed << ", position " << position << ": " << replay << " replayed, "
            << certain << " certain, " << drafts << " uncertain";
        position += certain + accepted;
        replay = accepted;
        if (replay == 0 && below(2) == 0) {  // goes on elsewhere, and what it leaves is spoilt
          machine.prepared->copy_state(slot, 3 - slot);
          (void)machine.run({{std::span(other).first(3), 0, slot}});
          slot = 3 - slot;
        }
      }
    }
  }
}

// Of a slot with rows in its log the committed state is copied, and no more.
TEST_P(DeltaNetTest, ACopyStandsAtTheCommittedState) {
  const std::vector<float> expected = whole();
  Machine machine(model, "", 2, 2);
  const auto part = [&](std::size_t first, std::size_t count) { return std::span(tokens).subspan(first, count); };
  (void)machine.run({{part(0, 20), 0, 0, 0, 12}});
  machine.prepared->copy_state(0, 1);
  const Status status = machine.try_run({{part(15, 1), 15, 1, 3, 1}});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "3 rows to replay before position 15, but the log of slot 1 has 0 that can come before it");
  const std::vector<float> from_copy = machine.run({{part(12, 30), 12, 1}});
  const std::vector<float> from_log = machine.run({{part(17, 25), 17, 0, 5}});
  const auto row = [&](std::ptrdiff_t r) { return expected.begin() + r * DeltaModel::kVocabulary; };
  EXPECT_TRUE(std::equal(from_copy.begin(), from_copy.end(), row(12)));
  EXPECT_TRUE(std::equal(from_log.begin(), from_log.end(), row(17)));
}

INSTANTIATE_TEST_SUITE_P(Cases, DeltaNetTest,
                         ::testing::Values(Case{{2, 4, 32, 32, true}, 4}, Case{{2, 6, 24, 40, false, true}, 4},
                                           Case{{1, 1, 128, 128}, 4}, Case{{3, 3, 16, 72, true}, 2},
                                           Case{{1, 2, 7, 5, true}, 3}, Case{{2, 2, 8, 130}, 1}));

TEST(DeltaNetSlots, AreCheckedAndCounted) {
  const DeltaModel model({{1, 2, 7, 5, true}, 3});
  Machine machine(model, "", 1, 2);
  const std::vector<std::int32_t> tokens = some_tokens(4, 1);
  // 2 inputs of 24 channels (padded to 32), 2 heads of 7 keys x 16 floats; in the log the inputs and 4 gates of each
  // row; and 7 keys, 10 values and 4 gates of each that is replayed
  const backend::MemoryUse memory = machine.prepared->memory();
  EXPECT_EQ(memory.bytes_per_slot, 2u * 32 * 4 + 2 * 7 * 16 * 4 + limits::kMaxDraft * (32 + 16 + 32) * 4);
  EXPECT_EQ(memory.state_bytes_reserved, 2 * memory.bytes_per_slot);
  const auto message = [&](const std::vector<Piece>& pieces) {
    const Status status = machine.try_run(pieces);
    return status ? std::string("fine") : status.error().message;
  };
  EXPECT_EQ(message({{tokens, 0, 0}}), "fine");
  EXPECT_NE(message({{tokens, 0, 2}}).find("slot 2"), std::string::npos);
  EXPECT_NE(message({{tokens, 0, -1}}).find("slot -1"), std::string::npos);
  EXPECT_NE(message({{tokens, 0, 1}, {tokens, 0, 1}}).find("taken"), std::string::npos);
  EXPECT_NE(message({{tokens, 3, 0}}).find("has seen 4"), std::string::npos);
  EXPECT_NE(message({{tokens, 4, 1}}).find("has seen 0"), std::string::npos);
  EXPECT_EQ(message({{tokens, 4, 0}, {tokens, 0, 1}}), "fine");
}

TEST(DeltaNetSlots, RowsOfTheLogAreCheckedBeforeAnythingMoves) {
  const DeltaModel model({{1, 2, 7, 5, true}, 3});
  Machine machine(model, "", 1, 2);
  const std::vector<std::int32_t> tokens = some_tokens(40, 1);
  const auto message = [&](const Piece& piece) {
    const Status status = machine.try_run({piece});
    return status ? std::string("fine") : status.error().message;
  };
  const auto all = std::span(tokens), some = all.first(4);
  EXPECT_EQ(message({some, 0, 0, 1}),
            "1 rows to replay before position 0, but the log of slot 0 has 0 that can come before it");
  EXPECT_EQ(message({some, 0, 0, 0, 1}), "fine");  // 3 in the log
  EXPECT_NE(message({some, 5, 0, 4}).find("has 3"), std::string::npos);
  EXPECT_NE(message({some, 1, 0, -1}).find("-1 rows to replay"), std::string::npos);
  EXPECT_NE(message({some, 2, 0, 2}).find("has seen 3 with the rows"), std::string::npos);
  EXPECT_NE(message({some, 0, 0, 2}).find("log of slot 0 has 0"), std::string::npos);  // begins again
  EXPECT_EQ(message({all.first(18), 3, 0, 2, 1}),
            "18 rows of a sequence of which 1 are certain: at most 16 may be uncertain");
  EXPECT_NE(message({some, 3, 0, 2, -1}).find("-1 are certain"), std::string::npos);
  EXPECT_EQ(message({all.first(17), 3, 0, 2, 1}), "fine");  // nothing of that has moved the slot or its log
  EXPECT_EQ(message({some, 20, 0, 16}), "fine");
  EXPECT_NE(message({some, 25, 0, 1}).find("has 0"), std::string::npos);  // certain rows empty the log
}

}  // namespace
}  // namespace adze::cpu
