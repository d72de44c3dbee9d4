// --concurrent: which dispatches of each family's plan run side by side, and that no bit knows of it
// (docs/design/0020).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "model/model.hpp"

namespace adze::test {
namespace {

using backend::Compute;
using Counts = std::map<std::string, int>;

class SideBySide : public OracleTest {
 protected:
  static std::vector<float> logits(const ops::Plan& plan, std::span<const std::int32_t> tokens, Compute compute,
                                   int threads, int chunk, bool concurrent) {
    Runner runner(plan, {.prepare = {.compute = compute,
                                     .threads = threads,
                                     .max_batch_rows = 600,
                                     .pack_in_memory = chunk % 2 == 0,
                                     .concurrent = concurrent}});
    return runner.prompt(tokens, static_cast<int>(tokens.size()), chunk);
  }
};

Counts groups(const backend::Schedule& schedule) {
  Counts groups;
  std::string names;
  for (const backend::DispatchInfo& d : schedule.dispatches) {
    names += d.name;
    if (!d.meets) {
      names += " | ";
      continue;
    }
    if (names != d.name) ++groups[names];
    names.clear();
  }
  return groups;
}

TEST_P(SideBySide, TheSameBits) {
  const Oracle oracle(GetParam().model);
  const OracleModel loaded = load_oracle(oracle, GetParam().type);
  const ops::Plan& plan = loaded.model->plan();
  const auto alone = backend::prepare(plan, {.threads = 2, .max_pages = 1}).value();
  const auto beside = backend::prepare(plan, {.threads = 2, .max_pages = 1, .concurrent = true}).value();
  const Counts found = groups(beside->schedule());
  EXPECT_EQ(groups(alone->schedule()), Counts());

  const std::map<std::string, Counts> expected = {
      {"gemma4-moe",
       {{"GatedPair | Route (product, choose) + Experts (gather)", 6}, {"ProjectAdd + Norm | Experts (gate, up)", 6}}},
      // Behind the last layer's keys only wanted rows go on; nothing moves across that.
      {"cohere2",
       {{"Project + AttentionPrep | GatedPair", 4},
        {"Attend | GatedPair", 1},
        {"ProjectAdd | ProjectAdd + Norm", 4},
        {"ProjectAdd | ProjectAdd + Head (norm)", 1}}}};
  const auto of_model = expected.find(GetParam().model);
  EXPECT_EQ(found, of_model == expected.end() ? Counts() : of_model->second);
  EXPECT_EQ(beside->schedule().route == alone->schedule().route, found.empty());
  EXPECT_EQ(beside->schedule().numeric_class, alone->schedule().numeric_class);
  if (found.empty()) return;

  std::vector<std::int32_t> tokens = oracle.prompt("p600");
  tokens.resize(80);  // past the edge of a page (64)
  for (const Compute compute : {Compute::automatic, Compute::f32}) {
    const std::vector<float> plain = logits(plan, tokens, compute, 1, 600, false);
    for (const int threads : {1, 2, 3, 4}) {
      for (const int chunk : {1, 2, 3, 8, 17, 600}) {
        EXPECT_TRUE(logits(plan, tokens, compute, threads, chunk, true) == plain)
            << threads << " threads, chunks of " << chunk << (compute == Compute::f32 ? ", float32" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SideBySide,
                         testing::Values(OracleRow{"llama-gqa-rope3", "Q8_0"}, OracleRow{"qwen3-dense", "Q8_0"},
                                         OracleRow{"gemma2", "BF16"}, OracleRow{"gemma3-text", "Q8_0"},
                                         OracleRow{"gemma4-e2b", "BF16"}, OracleRow{"gemma4-moe", "BF16"},
                                         OracleRow{"qwen3-moe", "BF16"}, OracleRow{"qwen3_5-dense", "Q8_0"},
                                         OracleRow{"qwen3_5-moe", "BF16"}, OracleRow{"qwen3-next", "BF16"},
                                         OracleRow{"gpt-oss", "MXFP4"}, OracleRow{"phi3-longrope", "BF16"},
                                         OracleRow{"cohere2", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
