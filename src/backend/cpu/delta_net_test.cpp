// Gated DeltaNet on the CPU against its definition: odd head sizes, every kernel table, and the same bits for every cut
// of the rows, number of threads and company in the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_features.hpp"
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
};

struct Machine {
  Machine(const DeltaModel& model, const char* table, int threads, int slots = 1) : width(model.plan.vocabulary_size) {
    prepared = backend::prepare(
                   model.plan,
                   {.kernel_set = table, .threads = threads, .max_batch_rows = 128, .max_pages = 2, .max_slots = slots})
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
      sequences.push_back({.full = pages, .slot = piece.slot});
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
  std::vector<std::int32_t> pages{0, 1};
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

INSTANTIATE_TEST_SUITE_P(Cases, DeltaNetTest,
                         ::testing::Values(Case{{2, 4, 32, 32, true}, 4}, Case{{2, 6, 24, 40, false, true}, 4},
                                           Case{{1, 1, 128, 128}, 4}, Case{{3, 3, 16, 72, true}, 2},
                                           Case{{1, 2, 7, 5, true}, 3}, Case{{2, 2, 8, 130}, 1}));

TEST(DeltaNetSlots, AreCheckedAndCounted) {
  const DeltaModel model({{1, 2, 7, 5, true}, 3});
  Machine machine(model, "", 1, 2);
  const std::vector<std::int32_t> tokens = some_tokens(4, 1);
  // 2 inputs of 24 channels (padded to 32), 2 heads of 7 keys x 16 floats
  const backend::MemoryUse memory = machine.prepared->memory();
  EXPECT_EQ(memory.bytes_per_slot, 2u * 32 * 4 + 2 * 7 * 16 * 4);
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

}  // namespace
}  // namespace adze::cpu
