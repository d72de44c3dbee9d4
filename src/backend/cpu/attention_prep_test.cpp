// What happens to q and k between their projection and the scores (norms over each head or over all of them, rotation,
// scaling by position) against the definition, for every table and for shapes that divide by nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "backend/backend.hpp"
#include "backend/cpu/cpu_features.hpp"
#include "ops/ref/interpreter.hpp"
#include "support/owned_weight.hpp"

namespace adze::cpu {
namespace {

using ops::NormSpec;
using Stored = ops::AttentionPrep::Stored;
using test::OwnedWeight;

constexpr int kVocabulary = 37, kHidden = 19, kTokens = 70;  // past the edge of a page

struct Case {
  const char* name;
  int heads, kv_heads, head_size;
  enum class Norms : std::uint8_t { none, each_head, all_heads } norms = Norms::none;
  NormSpec::Kind kind = NormSpec::Kind::rms;
  int rotated = 0;  // values of each head; 0: none
  bool interleaved = false;
  float position_scale = 0.0f;
  int position_interval = 1;
};

// Embed, Project, AttentionPrep, Attend, ProjectAdd, Head.
class Model {
 public:
  explicit Model(const Case& c, Stored stored = Stored::key_and_value) {
    const int query = c.heads * c.head_size, keys = c.kv_heads * c.head_size;
    plan_.hidden_size = kHidden;
    plan_.vocabulary_size = kVocabulary;
    plan_.context_length = 2 * backend::kPageTokens;
    plan_.kv_layers = {{c.kv_heads, c.head_size, 0}};
    ops::AttentionPrep prep{.heads = c.heads,
                            .kv_heads = c.kv_heads,
                            .head_size = c.head_size,
                            .has_q_norm = c.norms != Case::Norms::none,
                            .has_k_norm = c.norms != Case::Norms::none,
                            .norm_all_heads = c.norms == Case::Norms::all_heads,
                            .stored = stored,
                            .position_scale = c.position_scale,
                            .position_interval = c.position_interval,
                            .rope = c.rotated > 0 ? 0 : -1,
                            .in = 1,
                            .out = 2};
    if (prep.has_q_norm) {
      prep.q_norm = {.kind = c.kind, .weight = norm_weight(prep.norm_all_heads ? query : c.head_size)};
      prep.k_norm = {.kind = c.kind, .weight = norm_weight(prep.norm_all_heads ? keys : c.head_size)};
    }
    const int width = query + prep.stored_parts() * keys;
    plan_.buffers = {{"h", kHidden}, {"qkv", width}, {"q", query}, {"attended", query}};
    ops::RopeSpec rope{.inverse_frequency = {}, .interleaved = c.interleaved, .magnitude = 1.2f};
    for (int i = 0; i < c.rotated / 2; ++i) rope.inverse_frequency.push_back(1.0f / static_cast<float>(1 + 3 * i));
    if (c.rotated > 0) plan_.ropes = {rope};

    add(ops::Embed{.table = weight(kVocabulary, kHidden, 1.0f), .out = 0});
    add(ops::Project{.parts = {{weight(width, kHidden, 1.5f), nullptr}}, .in = 0, .out = 1});
    add(prep);
    add(ops::Attend{.heads = c.heads,
                    .kv_heads = c.kv_heads,
                    .head_size = c.head_size,
                    .scale = 1.0f / std::sqrt(static_cast<float>(c.head_size)),
                    .in = 2,
                    .out = 3});
    add(ops::ProjectAdd{.weight = weight(kHidden, query, 1.0f), .in = 3, .out = 0});
    add(ops::Head{.norm = {}, .weight = weight(kVocabulary, kHidden, 1.0f), .in = 0});
  }
  const ops::Plan& plan() const { return plan_; }

 private:
  ops::WeightRef weight(int rows, int columns, float spread) {
    std::normal_distribution<float> normal(0.0f, spread / std::sqrt(static_cast<float>(columns)));
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    for (float& x : values) x = normal(random_);
    weights_.push_back(std::make_unique<OwnedWeight>(rows, columns, values));
    return weights_.back()->ref();
  }
  ops::WeightRef norm_weight(int size) {
    std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& x : values) x = uniform(random_);
    weights_.push_back(std::make_unique<OwnedWeight>(values));
    return weights_.back()->ref();
  }
  void add(ops::Step step) {
    plan_.steps.push_back(std::move(step));
    plan_.step_layers.push_back(0);
  }

  std::mt19937 random_{23};
  std::vector<std::unique_ptr<OwnedWeight>> weights_;
  ops::Plan plan_;
};

backend::PrepareOptions options(int threads, const char* kernel_set = "") {
  return {.compute = backend::Compute::f32,
          .kv_type = backend::KvType::f32,
          .kernel_set = kernel_set,
          .threads = threads,
          .max_batch_rows = kTokens,
          .max_pages = 2};
}

std::vector<std::int32_t> tokens() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back(i * i * 5 % kVocabulary);
  return tokens;
}

// The logits of all rows, in chunks.
std::vector<float> run(const ops::Plan& plan, const backend::PrepareOptions& options, int chunk) {
  const auto prepared = backend::prepare(plan, options).value();
  const std::int32_t pages[] = {1, 0};
  const backend::SequencePages sequence{pages};
  std::vector<float> all;
  const std::vector<std::int32_t> prompt = tokens();
  for (int first = 0; first < kTokens; first += chunk) {
    std::vector<backend::Row> rows;
    for (int i = first; i < std::min(kTokens, first + chunk); ++i)
      rows.push_back({prompt[static_cast<std::size_t>(i)], 0, i, true});
    const Status status = prepared->run({rows, {&sequence, 1}});
    EXPECT_TRUE(status.has_value()) << status.error().message;
    for (std::size_t i = 0; status && i < rows.size(); ++i) {
      const auto logits = prepared->logits(static_cast<int>(i));
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  return all;
}

class AttentionPrepTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionPrepTest, EqualsItsDefinitionBitForBitOnEveryTable) {
  const Model model(GetParam());
  const ops::ref::Rows expected = ops::ref::Interpreter(model.plan()).run(tokens(), kTokens);
  std::vector<float> first;
  for (const KernelTable* table : available_tables()) {
    for (const int chunk : {kTokens, 9}) {
      const std::vector<float> found = run(model.plan(), options(3, table->name), chunk);
      ASSERT_EQ(found.size(), expected.values.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected.values[i], 2e-5) << table->name << ", value " << i;
      if (first.empty()) first = found;
      EXPECT_TRUE(found == first) << table->name << ", chunks of " << chunk;
    }
  }
}

using enum Case::Norms;
INSTANTIATE_TEST_SUITE_P(Cases, AttentionPrepTest,
                         testing::Values(Case{"plain", 3, 1, 10}, Case{"each_head", 5, 5, 7, each_head},
                                         Case{"all_heads", 5, 1, 6, all_heads, NormSpec::Kind::rms, 6},
                                         Case{"all_heads_odd", 3, 3, 13, all_heads, NormSpec::Kind::rms, 8, true},
                                         Case{"all_heads_layer_norm", 6, 2, 11, all_heads, NormSpec::Kind::layer, 4},
                                         Case{"all_heads_of_one", 1, 1, 22, all_heads, NormSpec::Kind::rms, 22},
                                         Case{"by_position", 4, 2, 18, none, NormSpec::Kind::rms, 12, true, 0.4f, 9},
                                         Case{"by_every_position", 3, 1, 5, each_head, NormSpec::Kind::rms, 4, false,
                                              0.1f, 1}),
                         [](const auto& row) { return std::string(row.param.name); });

// The keys that become values are those before the norm, which is computed in place here.
TEST(AttentionPrep, RefusesANormOverAllHeadsWhereKeysAreValues) {
  const Model model({"", 3, 1, 10, all_heads}, Stored::key_as_value);
  const auto prepared = backend::prepare(model.plan(), options(1));
  ASSERT_FALSE(prepared.has_value());
  EXPECT_EQ(prepared.error().code, ErrorCode::unsupported_feature);
}

}  // namespace
}  // namespace adze::cpu
