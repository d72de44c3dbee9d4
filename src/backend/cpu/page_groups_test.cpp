// Full and sliding layers side by side, with pages of each group apart: pages that left the window are poison or not
// there at all, and the bits are those of a table that keeps everything. Windows and lengths at every edge.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "backend/backend.hpp"
#include "support/owned_weight.hpp"

namespace adze::cpu {
namespace {

using backend::kPageTokens;
using backend::PageGroup;
using test::OwnedWeight;

constexpr int kVocabulary = 40, kHidden = 24, kHeads = 4, kKvHeads = 2, kHeadSize = 12, kContext = 400;
constexpr std::int32_t kPoison = kVocabulary - 1;  // its embedding is not a number

// A layer for each window, 0 for a full one; each adds to the hidden row.
class Model {
 public:
  Model(std::initializer_list<int> windows) {
    plan_.hidden_size = kHidden;
    plan_.vocabulary_size = kVocabulary;
    plan_.context_length = kContext;
    constexpr int kQuery = kHeads * kHeadSize, kKeys = kKvHeads * kHeadSize;
    plan_.buffers = {{"h", kHidden}, {"qkv", kQuery + 2 * kKeys}, {"q", kQuery}, {"attended", kQuery}};
    auto* table = weight(kVocabulary, kHidden);
    add(ops::Embed{.table = table, .out = 0});
    for (const int window : windows) {
      const int layer = static_cast<int>(plan_.kv_layers.size());
      plan_.kv_layers.push_back({kKvHeads, kHeadSize, window});
      add(ops::Project{.parts = {{weight(kQuery + 2 * kKeys, kHidden), nullptr}}, .in = 0, .out = 1});
      add(ops::AttentionPrep{.kv_layer = layer,
                             .heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_size = kHeadSize,
                             .rope = -1,
                             .in = 1,
                             .out = 2});
      add(ops::Attend{.kv_layer = layer,
                      .heads = kHeads,
                      .kv_heads = kKvHeads,
                      .head_size = kHeadSize,
                      .scale = 0.3f,
                      .window = window,
                      .in = 2,
                      .out = 3});
      add(ops::ProjectAdd{.weight = weight(kHidden, kQuery), .in = 3, .out = 0});
    }
    add(ops::Head{.norm = {}, .weight = weight(kVocabulary, kHidden), .in = 0});
  }
  const ops::Plan& plan() const { return plan_; }

 private:
  ops::WeightRef weight(int rows, int columns) {
    std::normal_distribution<float> normal(0.0f, 1.5f / std::sqrt(static_cast<float>(columns)));
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    for (float& x : values) x = normal(random_);
    if (weights_.empty()) {
      std::fill_n(values.begin() + kPoison * columns, columns, std::numeric_limits<float>::quiet_NaN());
    }
    weights_.push_back(std::make_unique<OwnedWeight>(rows, columns, values));
    return weights_.back()->ref();
  }
  void add(ops::Step step) {
    plan_.steps.push_back(std::move(step));
    plan_.step_layers.push_back(0);
  }

  std::mt19937 random_{31};
  std::vector<std::unique_ptr<OwnedWeight>> weights_;
  ops::Plan plan_;
};

std::vector<std::int32_t> tokens(int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(i * i * 7 % kPoison);
  return tokens;
}

constexpr int kPages = kContext / kPageTokens + 1, kSpare = kPages;  // a page that holds poison
constexpr int kAllPages = kPages + 2;                                // and one that is free

backend::PrepareOptions options(int threads) {
  return {.compute = backend::Compute::f32,
          .kv_type = backend::KvType::f16,
          .threads = threads,
          .max_batch_rows = 160,
          .max_pages = kAllPages,
          .max_sliding_pages = kAllPages};
}

class Machine {
 public:
  Machine(const ops::Plan& plan, int threads)
      : plan_(plan), prepared_(backend::prepare(plan, options(threads)).value()), full_(kPages), sliding_(kPages) {
    std::mt19937 random(5);
    for (auto* table : {&full_, &sliding_}) {
      for (int i = 0; i < kPages; ++i) (*table)[static_cast<std::size_t>(i)] = i;
      std::shuffle(table->begin(), table->end(), random);
    }
    // A page of keys and values that are no numbers.
    std::vector<backend::Row> rows;
    for (int i = 0; i < kPageTokens; ++i) rows.push_back({kPoison, 0, i, false});
    const std::int32_t spare = kSpare;
    const backend::SequencePages sequence{.full = {&spare, 1}, .sliding = {&spare, 1}};
    EXPECT_TRUE(prepared_->run({rows, {&sequence, 1}}));
  }

  // Rows [first, end) of the text; their logits behind `out`.
  Status run(int first, int end, std::vector<float>& out) {
    const std::vector<std::int32_t> text = tokens(end);
    std::vector<backend::Row> rows;
    for (int i = first; i < end; ++i) rows.push_back({text[static_cast<std::size_t>(i)], 0, i, true});
    const backend::SequencePages sequence{.full = full_, .sliding = sliding_};
    ADZE_TRY_STATUS(prepared_->run({rows, {&sequence, 1}}));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto logits = prepared_->logits(static_cast<int>(i));
      out.insert(out.end(), logits.begin(), logits.end());
    }
    return {};
  }

  // What no row from `position` on sees is poison, and not in the table.
  void give_up_before(int position) {
    const int first = std::max(0, position - backend::sliding_window(plan_) + 1) / kPageTokens;
    for (int i = 0; i < first; ++i) give_up(i);
  }
  void give_up(int index) {
    std::int32_t& page = sliding_[static_cast<std::size_t>(index)];
    if (page >= 0) prepared_->copy_page(PageGroup::sliding, kSpare, page);
    page = -1;
  }
  // The same text in other pages of the group, one after the other.
  void move(PageGroup group) {
    std::vector<std::int32_t>& table = group == PageGroup::full ? full_ : sliding_;
    std::int32_t hole = kAllPages - 1;
    for (std::int32_t& page : table) {
      if (page < 0) continue;
      prepared_->copy_page(group, page, hole);
      std::swap(page, hole);
    }
  }
  backend::Prepared& prepared() { return *prepared_; }

 private:
  const ops::Plan& plan_;
  std::unique_ptr<backend::Prepared> prepared_;
  std::vector<std::int32_t> full_, sliding_;
};

std::vector<float> plain(const ops::Plan& plan, int length) {
  Machine machine(plan, 1);
  std::vector<float> logits;
  for (int i = 0; i < length; ++i) EXPECT_TRUE(machine.run(i, i + 1, logits));
  return logits;
}

class PageGroups : public testing::TestWithParam<int> {};

TEST_P(PageGroups, PagesBehindTheWindowAreNeverTouched) {
  const int window = GetParam();
  for (const bool only_sliding : {false, true}) {
    const Model model = only_sliding ? Model({window, window}) : Model({window, 0, std::max(1, window / 2)});
    const std::vector<float> expected = plain(model.plan(), kContext);
    // Decoding, verify batches, chunks of prompts.
    constexpr std::pair<int, int> kThreadsAndChunk[] = {{1, 1}, {2, 5}, {3, 17}, {2, 63}, {3, 64}, {1, 65}, {2, 150}};
    for (const auto& [threads, chunk] : kThreadsAndChunk) {
      Machine machine(model.plan(), threads);
      std::vector<float> logits;
      for (int first = 0; first < kContext; first += chunk) {
        machine.give_up_before(first);
        const Status status = machine.run(first, std::min(first + chunk, kContext), logits);
        ASSERT_TRUE(status) << status.error().message;
      }
      EXPECT_TRUE(logits == expected) << threads << " threads, chunks of " << chunk;
    }
  }
}

// A prompt up to each edge, then one more row.
TEST_P(PageGroups, LengthsAtEveryEdge) {
  const int window = GetParam();
  const Model model({0, window});
  const std::vector<float> expected = plain(model.plan(), kContext);
  Machine machine(model.plan(), 2);
  for (const int edge : {64, 128, 192, window, window + 64, 2 * window, 2 * window + 64}) {
    for (const int length : {edge - 1, edge, edge + 1}) {
      if (length < 1 || length + 2 > 160) continue;
      Machine again(model.plan(), 2);
      std::vector<float> logits;
      ASSERT_TRUE(again.run(0, length, logits));
      for (int i = length; i < length + 2; ++i) {
        again.give_up_before(i);
        ASSERT_TRUE(again.run(i, i + 1, logits));
      }
      EXPECT_TRUE(std::equal(logits.begin(), logits.end(), expected.begin())) << "a prompt of " << length;
    }
  }
}

TEST_P(PageGroups, CopiedPagesHoldTheSame) {
  const Model model({GetParam(), 0});
  const std::vector<float> expected = plain(model.plan(), kContext);
  Machine machine(model.plan(), 2);
  std::vector<float> logits;
  for (int first = 0; first < kContext; first += 25) {
    machine.give_up_before(first);
    if (first == 150) machine.move(PageGroup::sliding);
    if (first == 175) machine.move(PageGroup::full);
    ASSERT_TRUE(machine.run(first, std::min(first + 25, kContext), logits));
  }
  EXPECT_TRUE(logits == expected);
}

// The window of the first row, its own position included, decides.
TEST_P(PageGroups, APageThatIsStillSeenCannotBeGivenUp) {
  const int window = GetParam();
  const Model model({window, 0});
  Machine machine(model.plan(), 1);
  std::vector<float> logits;
  ASSERT_TRUE(machine.run(0, 130, logits));
  machine.give_up(0);
  std::vector<float> more;
  const Status status = machine.run(130, 132, more);
  const bool seen = 130 - window + 1 < kPageTokens;
  EXPECT_EQ(status.has_value(), !seen);
  if (seen) {
    EXPECT_EQ(status.error().message,
              fmt::format("the sliding page of position {} was given up, but the row at position 130 still sees it",
                          std::max(0, 130 - window + 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, PageGroups, testing::Values(1, 2, 63, 64, 65, 66, 67, 68, 127, 128, 129, 500));

TEST(PageGroup, MemoryIsCountedByGroup) {
  const auto memory = [](std::initializer_list<int> windows) {
    const Model model(windows);
    const auto use = backend::prepare(model.plan(), options(1)).value()->memory();
    const auto estimate = backend::estimate_memory(model.plan(), options(1));
    EXPECT_EQ(use.bytes_per_page, estimate.bytes_per_page);
    EXPECT_EQ(use.bytes_per_sliding_page, estimate.bytes_per_sliding_page);
    EXPECT_EQ(use.kv_bytes_reserved, estimate.kv_bytes_reserved);
    EXPECT_EQ(use.kv_bytes_reserved, kAllPages * (use.bytes_per_page + use.bytes_per_sliding_page));
    return use;
  };
  constexpr std::uint64_t kLayer = std::uint64_t{kPageTokens} * kKvHeads * (kHeadSize + 16) * 2;  // values in 16
  EXPECT_EQ(memory({0, 30, 40}).bytes_per_page, kLayer);
  EXPECT_EQ(memory({0, 30, 40}).bytes_per_sliding_page, 2 * kLayer);
  EXPECT_EQ(memory({0, 0}).bytes_per_sliding_page, 0);
  EXPECT_EQ(memory({9}).bytes_per_page, 0);
}

TEST(PageGroup, TablesAreCheckedBeforeAnythingMoves) {
  const Model model({30, 0});
  const auto prepared = backend::prepare(model.plan(), options(1)).value();
  const std::int32_t good[] = {0, 1}, hole[] = {-1, 1}, outside[] = {0, kAllPages}, negative[] = {-2, 0};
  const auto message = [&](std::span<const std::int32_t> full, std::span<const std::int32_t> sliding,
                           std::vector<backend::Row> rows) {
    const backend::SequencePages sequence{.full = full, .sliding = sliding};
    const Status status = prepared->run({rows, {&sequence, 1}});
    return status ? std::string("fine") : status.error().message;
  };
  const std::vector<backend::Row> rows{{1, 0, 100, true}};
  EXPECT_EQ(message(good, good, rows), "fine");
  EXPECT_EQ(message(good, hole, rows), "fine");
  EXPECT_EQ(message(hole, good, rows), "page -1 is not one of 9");
  EXPECT_EQ(message(good, outside, rows), "sliding page 9 is not one of 9");
  EXPECT_EQ(message(good, negative, rows), "sliding page -2 is not one of 9");
  EXPECT_EQ(message(good, {}, rows), "position 100 lies outside the 0 sliding pages of its sequence");
  EXPECT_EQ(message({good, 1}, good, rows), "position 100 lies outside the 1 pages of its sequence");
  EXPECT_EQ(message(good, good, {{1, 0, 100, true}, {1, 0, 102, true}}),
            "position 102 of a sequence cannot follow position 100");
  EXPECT_EQ(message(good, good, {{1, 0, kContext, true}}), "position 400 lies outside the context of 400");
}

}  // namespace
}  // namespace adze::cpu
