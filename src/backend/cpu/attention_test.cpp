// Attention over cache pages against plain loops in double, for every table, cache format, head size and window; and
// the bits of a query do not depend on its company.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/kv_store.hpp"

namespace adze::cpu {
namespace {

struct Case {
  KvFormat format;
  int head_size, context, window;
  float softcap;
};

class AttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  // One KV head with `context` random positions.
  void SetUp() override {
    const Case& c = GetParam();
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    plan_.kv_layers.push_back({1, c.head_size, c.window});
    const std::int64_t pages = backend::pages_for(c.context);
    store_.emplace(KvStore::reserve(plan_, c.format, pages, pages).value());
    keys_.resize(static_cast<std::size_t>(c.context * c.head_size));
    values_.resize(keys_.size());
    for (float& x : keys_) x = normal(random);
    for (float& x : values_) x = normal(random);
    query_.resize(static_cast<std::size_t>(kMaxQueries * c.head_size));
    for (float& x : query_) x = normal(random);
  }
  void append(const KernelTable& table) {
    const Case& c = GetParam();
    for (int p = 0; p < c.context; ++p) {
      const std::int32_t page = p / kPageTokens;
      table.append_key(c.format, keys_.data() + p * c.head_size, c.head_size, p % kPageTokens,
                       store_->keys(page, 0, 0));
      table.append_value(c.format, values_.data() + p * c.head_size, c.head_size, p % kPageTokens,
                         store_->values(page, 0, 0));
    }
  }
  // Query q stands at the last position but q.
  std::vector<float> attend(const KernelTable& table, int first_query, int queries) {
    const Case& c = GetParam();
    const int padded = (c.head_size + 15) / 16 * 16;
    std::vector<float> state(static_cast<std::size_t>(queries * padded), 0.0f), part(state.size()),
        scores(kMaxQueries * kPartition), unpacked(static_cast<std::size_t>(kPageTokens * padded));
    std::vector<float> maximum(static_cast<std::size_t>(queries), -INFINITY),
        denominator(static_cast<std::size_t>(queries), 0.0f);
    for (int begin = 0; begin < c.context; begin += kPartition) {
      const std::byte *key_pages[kPartition / kPageTokens], *value_pages[kPartition / kPageTokens];
      float part_maximum[kMaxQueries], part_denominator[kMaxQueries];
      AttendArgs a{};
      a.format = c.format;
      a.head_size = c.head_size;
      a.begin = begin;
      a.count = std::min(kPartition, c.context - begin);
      for (int i = 0; i * kPageTokens < a.count; ++i) {
        key_pages[i] = store_->keys(begin / kPageTokens + i, 0, 0);
        value_pages[i] = store_->values(begin / kPageTokens + i, 0, 0);
      }
      a.key_pages = key_pages;
      a.next_keys = key_pages[0];
      a.unpacked = unpacked.data();
      a.value_pages = value_pages;
      a.queries = queries;
      a.scale = 0.25f;
      a.softcap = c.softcap;
      a.scores = scores.data();
      a.maximum = part_maximum;
      a.denominator = part_denominator;
      for (int q = 0; q < queries; ++q) {
        a.query[q] = query_.data() + (first_query + q) * c.head_size;
        a.last[q] = c.context - 1 - (first_query + q);
        a.first[q] = c.window == 0 ? 0 : std::max(0, a.last[q] - c.window + 1);
        a.out[q] = part.data() + q * padded;
      }
      table.attend(a);
      for (int q = 0; q < queries; ++q) {
        const auto at = static_cast<std::size_t>(q);
        table.merge(state.data() + q * padded, &maximum[at], &denominator[at], part.data() + q * padded,
                    part_maximum[q], part_denominator[q], c.head_size);
      }
    }
    std::vector<float> out;
    for (int q = 0; q < queries; ++q) {
      const auto at = static_cast<std::size_t>(q);
      table.finish(state.data() + q * padded, maximum[at], denominator[at], q % 2 == 1, 0.5f, c.head_size);
      out.insert(out.end(), state.begin() + q * padded, state.begin() + q * padded + c.head_size);
    }
    return out;
  }
  std::vector<double> definition(int q) const {
    const Case& c = GetParam();
    const int last = c.context - 1 - q, first = c.window == 0 ? 0 : std::max(0, last - c.window + 1);
    std::vector<double> scores, out(static_cast<std::size_t>(c.head_size), 0.0);
    double largest = -1e300;
    for (int p = first; p <= last; ++p) {
      double s = 0;
      for (int d = 0; d < c.head_size; ++d) {
        s += double{query_[static_cast<std::size_t>(q * c.head_size + d)]} *
             double{keys_[static_cast<std::size_t>(p * c.head_size + d)]};
      }
      s *= 0.25;
      if (c.softcap != 0.0f) s = std::tanh(s / double{c.softcap}) * double{c.softcap};
      scores.push_back(s);
      largest = std::max(largest, s);
    }
    double sum = q % 2 == 1 ? std::exp(0.5 - largest) : 0.0;
    for (double& s : scores) sum += (s = std::exp(s - largest));
    for (int p = first; p <= last; ++p) {
      for (int d = 0; d < c.head_size; ++d) {
        out[static_cast<std::size_t>(d)] += scores[static_cast<std::size_t>(p - first)] / sum *
                                            double{values_[static_cast<std::size_t>(p * c.head_size + d)]};
      }
    }
    return out;
  }

  ops::Plan plan_;
  std::optional<KvStore> store_;
  std::vector<float> keys_, values_, query_;
};

TEST_P(AttentionTest, EqualsItsDefinitionBitForBitOnEveryTable) {
  const Case& c = GetParam();
  const int queries = std::min(kMaxQueries, c.context);
  const double tolerance = c.format == KvFormat::f32 ? 2e-5 : c.format == KvFormat::f16 ? 5e-3 : 0.12;
  std::vector<float> first;
  for (const KernelTable* table : available_tables()) {
    append(*table);
    const std::vector<float> out = attend(*table, 0, queries);
    for (int q = 0; q < queries; ++q) {
      const auto expected = definition(q);
      for (int d = 0; d < c.head_size; ++d) {
        ASSERT_NEAR(out[static_cast<std::size_t>(q * c.head_size + d)], expected[static_cast<std::size_t>(d)],
                    tolerance)
            << table->name << " query " << q << " dimension " << d;
      }
    }
    if (first.empty()) first = out;
    EXPECT_EQ(std::memcmp(first.data(), out.data(), out.size() * 4), 0) << table->name;
    // Alone, in small companies and in large ones (even queries have no sink, and the first of a company is number 0).
    for (const int company : {1, 2, 3, 4, 5, 6, 7, 13}) {
      for (int q = 0; q + company <= queries; q += company + company % 2) {
        const std::vector<float> part = attend(*table, q, company);
        EXPECT_EQ(std::memcmp(part.data(), out.data() + q * c.head_size, part.size() * 4), 0)
            << table->name << ": queries " << q << " and on, " << company << " of them";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTest,
                         ::testing::Values(Case{KvFormat::f32, 64, 1, 0, 0}, Case{KvFormat::f32, 24, 17, 0, 0},
                                           Case{KvFormat::f32, 64, 600, 0, 0}, Case{KvFormat::f32, 16, 300, 40, 0},
                                           Case{KvFormat::f32, 128, 257, 0, 30.0f}, Case{KvFormat::f16, 64, 600, 0, 0},
                                           Case{KvFormat::f16, 24, 65, 0, 0}, Case{KvFormat::q8_0, 64, 600, 0, 0},
                                           Case{KvFormat::q8_0, 24, 70, 0, 0}, Case{KvFormat::q8_0, 80, 130, 100, 0},
                                           Case{KvFormat::f32, 256, 70, 0, 0}));

}  // namespace
}  // namespace adze::cpu
