// Every oracle model through the backend: accuracy under float32 and under int8 activations, greedy text, and that no
// bit depends on threads, chunks, company in the batch, or the instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "backend/cpu/cpu_features.hpp"
#include "golden/accuracy_table.hpp"
#include "golden/oracle.hpp"
#include "golden/runner.hpp"

namespace adze::test {
namespace {

using backend::Compute;

constexpr const char* kPrompts[] = {"p1", "p7", "p70", "p600"};

auto llama_rows() {
  return testing::Values(
      OracleRow{"llama-gqa-rope3", "F32"}, OracleRow{"llama-gqa-rope3", "BF16"}, OracleRow{"llama-gqa-rope3", "Q4_0"},
      OracleRow{"llama-gqa-rope3", "Q4_1"}, OracleRow{"llama-gqa-rope3", "Q8_0"}, OracleRow{"llama-k256", "IQ4_XS"},
      OracleRow{"llama-k256", "Q3_K"}, OracleRow{"llama-k256", "Q4_K_M"}, OracleRow{"llama-k256", "Q5_0"},
      OracleRow{"llama-k256", "Q5_K"}, OracleRow{"llama-k256", "Q6_K"}, OracleRow{"llama-tied-mqa-hd24", "Q8_0"});
}

auto dense_rows() {
  return testing::Values(
      OracleRow{"gemma2", "BF16", Noise::sensitive}, OracleRow{"gemma3-text", "BF16", Noise::sensitive},
      OracleRow{"gemma3-text", "Q8_0", Noise::sensitive}, OracleRow{"gemma4-e2b", "BF16", Noise::sensitive},
      OracleRow{"gemma4-moe", "BF16", Noise::routed}, OracleRow{"granite", "BF16"}, OracleRow{"cohere2", "BF16"},
      OracleRow{"ministral3", "BF16"}, OracleRow{"olmo2", "BF16"}, OracleRow{"phi3-longrope", "BF16"},
      OracleRow{"phi3", "Q8_0"}, OracleRow{"qwen2-bias", "BF16"}, OracleRow{"qwen3-dense", "BF16"},
      OracleRow{"qwen3-dense", "Q4_0"}, OracleRow{"qwen3-dense", "Q8_0"}, OracleRow{"smollm3-nope", "Q8_0"});
}

auto mixture_rows() {
  return testing::Values(OracleRow{"qwen3-moe", "BF16", Noise::routed}, OracleRow{"gpt-oss", "MXFP4", Noise::routed},
                         OracleRow{"qwen3_5-moe", "BF16", Noise::routed},
                         OracleRow{"qwen3-next", "BF16", Noise::routed});
}

auto hybrid_rows() {
  return testing::Values(OracleRow{"qwen3_5-dense", "mtp-BF16", Noise::sensitive},
                         OracleRow{"qwen3_5-dense", "Q8_0", Noise::sensitive},
                         OracleRow{"qwen3_5-k256", "Q4_K", Noise::sensitive});
}

auto mlx_rows() {
  return testing::Values(OracleRow{"llama-mlx64", "MLX_4BIT"}, OracleRow{"llama-mlx64", "MLX_8BIT"},
                         OracleRow{"qwen3-dense", "MLX_4BIT"}, OracleRow{"qwen3-dense", "MLX_8BIT"},
                         OracleRow{"qwen3_5-k256", "MLX_4BIT", Noise::sensitive},
                         OracleRow{"gemma4-k256", "MLX_4BIT", Noise::sensitive});
}

bool is_float(std::string_view type) {
  return type == "F32" || (type.starts_with("HF") && type != "HF_MXFP4") || type.ends_with("BF16");
}

// Sanitizers make the portable kernels hundreds of times slower, and look for errors that the first rows show already.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kInstructionSetRows = 9;
#else
constexpr std::size_t kInstructionSetRows = 80;
#endif

// The README of the oracles: what int8 activations may cost, by the blocks that they are rounded in.
double int8_tolerance(std::string_view type) {
  if (is_float(type)) return 1e-4;  // float weights keep float32 activations
  return type.find("_K") != std::string_view::npos || type == "IQ4_XS" ? 0.15 : 0.12;
}

Runner::Options one_sequence(Compute compute, backend::KvType kv = backend::KvType::automatic, int threads = 2) {
  return {.prepare = {.compute = compute, .kv_type = kv, .threads = threads, .max_batch_rows = 600}};
}

class Accuracy : public OracleTest {};

TEST_P(Accuracy, Float32ActivationsEqualTheOracle) {
  const Oracle oracle(GetParam().model);
  for (const char* prompt : kPrompts) {
    const OracleModel loaded = load_oracle(oracle, GetParam().type, prompt);
    Runner runner(loaded.model->plan(), one_sequence(Compute::f32));
    const std::vector<float> logits = runner.prompt(oracle.prompt(prompt), 1, 600);
    const double error = rel_rms(logits, oracle.last_logits(GetParam().type, prompt));
    record_accuracy(GetParam(), Path::float32, prompt, error);
    EXPECT_LT(error, 1e-4) << prompt;
  }
}

TEST_P(Accuracy, AutomaticComputeIsWithinTheTypesTolerance) {
  const Oracle oracle(GetParam().model);
  const bool each = GetParam().noise == Noise::dense || is_float(GetParam().type);
  std::vector<double> errors;
  for (const char* prompt : kPrompts) {
    const OracleModel loaded = load_oracle(oracle, GetParam().type, prompt);
    Runner runner(loaded.model->plan(), one_sequence(Compute::automatic, backend::KvType::f32));
    const std::vector<float> logits = runner.prompt(oracle.prompt(prompt), 1, 600);
    errors.push_back(rel_rms(logits, oracle.last_logits(GetParam().type, prompt)));
    record_accuracy(GetParam(), Path::automatic, prompt, errors.back());
    if (each) {
      EXPECT_LT(errors.back(), int8_tolerance(GetParam().type)) << prompt;
    } else if (GetParam().noise == Noise::sensitive) {
      EXPECT_LT(errors.back(), 0.4) << prompt;
    }
    if (const auto tight = oracle.tight_int8_logits(GetParam().type, prompt)) {
      EXPECT_LT(rel_rms(logits, *tight), 1e-4) << prompt << ", against exactly rounded inputs";
    }
  }
  std::ranges::sort(errors);
  if (!each) {
    EXPECT_LT((errors[1] + errors[2]) / 2, 0.15);
  }
}

// Of mixtures the median counts, as with int8 activations: in gpt-oss 600 tokens under a float16 KV choose another
// expert in 18 of 2,400 places and end at 0.028, while prompts that flip none near their end stay under 0.0025.
TEST_P(Accuracy, HalfAndByteKvCostLittle) {
  const Oracle oracle(GetParam().model);
  for (const auto& [kv, tolerance] : {std::pair{backend::KvType::f16, 0.01}, {backend::KvType::q8_0, 0.1}}) {
    std::vector<double> errors;
    for (const char* prompt : kPrompts) {
      const OracleModel loaded = load_oracle(oracle, GetParam().type, prompt);
      Runner runner(loaded.model->plan(), one_sequence(Compute::f32, kv));
      const std::vector<float> logits = runner.prompt(oracle.prompt(prompt), 1, 600);
      errors.push_back(rel_rms(logits, oracle.last_logits(GetParam().type, prompt)));
      const bool sensitive = GetParam().noise == Noise::sensitive && kv == backend::KvType::q8_0;
      if (GetParam().noise != Noise::routed) {
        EXPECT_LT(errors.back(), sensitive ? 0.4 : tolerance) << prompt;
      }
    }
    std::ranges::sort(errors);
    if (GetParam().noise == Noise::routed) {
      EXPECT_LT((errors[1] + errors[2]) / 2, tolerance);
    }
  }
}

// Both models are the same to 1e-4 of the logits' spread, so a step whose two best logits are closer than that decides
// nothing: comparing stops there.
TEST_P(Accuracy, GreedyTextEqualsTheOracle) {
  const Oracle oracle(GetParam().model);
  for (const char* prompt : {"p7", "p70"}) {
    const GreedyText expected = oracle.greedy(GetParam().type, prompt);
    const OracleModel loaded = load_oracle(oracle, GetParam().type, prompt);
    Runner runner(loaded.model->plan(), one_sequence(Compute::f32));
    std::vector<float> logits = runner.prompt(oracle.prompt(prompt), 1, 600);
    for (std::size_t step = 0; step < expected.tokens.size(); ++step) {
      const std::int32_t token = argmax(logits);
      if (token != expected.tokens[step]) {
        EXPECT_LT(expected.margins[step], 1e-3f) << prompt << ", step " << step;
        break;
      }
      logits = runner.prompt({&token, 1}, 1, 1);
    }
  }
}

auto folder_rows() {
  return testing::Values(OracleRow{"gemma3-text", "HF", Noise::sensitive}, OracleRow{"llama-attnbias", "HF"},
                         OracleRow{"llama-gqa-rope3", "HF"}, OracleRow{"mistral-swa", "HF"}, OracleRow{"cohere2", "HF"},
                         OracleRow{"granite", "HF"}, OracleRow{"ministral3", "HF"}, OracleRow{"olmo2", "HF"},
                         OracleRow{"phi3-longrope", "HF"}, OracleRow{"qwen3-dense", "HF"},
                         OracleRow{"qwen3_5-kvdiff", "HF"}, OracleRow{"qwen3_5-dense", "HF_VLM"},
                         OracleRow{"gemma4-e2b", "HF_VLM", Noise::sensitive},
                         OracleRow{"qwen3-moe", "HF", Noise::routed}, OracleRow{"qwen3-next", "HF", Noise::routed},
                         OracleRow{"qwen3_5-moe", "HF", Noise::routed}, OracleRow{"gemma4-moe", "HF", Noise::routed},
                         OracleRow{"gpt-oss", "HF", Noise::routed}, OracleRow{"gpt-oss", "HF_MXFP4", Noise::routed});
}

INSTANTIATE_TEST_SUITE_P(Folders, Accuracy, folder_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Llama, Accuracy, llama_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Dense, Accuracy, dense_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Mixture, Accuracy, mixture_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Mlx, Accuracy, mlx_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Hybrid, Accuracy, hybrid_rows(), [](const auto& row) { return oracle_row_name(row.param); });

// --- bits ------------------------------------------------------------------------------------------------------------

class Bits : public OracleTest {
 protected:
  void SetUp() override {
    OracleTest::SetUp();
    if (IsSkipped()) return;
    const Oracle oracle(GetParam().model);
    loaded = load_oracle(oracle, GetParam().type);
    plan = loaded.model->plan();
    other = oracle.prompt("p70");
    tokens = oracle.prompt("p600");
    tokens.resize(80);  // past the edge of a page (64)
  }
  OracleModel loaded;
  ops::Plan plan;
  std::vector<std::int32_t> tokens, other;

  std::vector<float> all_logits(Compute compute, int threads, int chunk, const char* kernel_set = "",
                                bool packed = false) {
    Runner::Options options = one_sequence(compute, backend::KvType::automatic, threads);
    options.prepare.kernel_set = kernel_set;
    options.prepare.pack_in_memory = packed;
    Runner runner(plan, options);
    return runner.prompt(tokens, static_cast<int>(tokens.size()), chunk);
  }
};

TEST_P(Bits, DoNotDependOnThreadsOrChunks) {
  for (const Compute compute : {Compute::automatic, Compute::f32}) {
    const std::vector<float> expected = all_logits(compute, 1, 600);
    ASSERT_EQ(expected.size(), tokens.size() * static_cast<std::size_t>(plan.vocabulary_size));
    constexpr std::pair<int, int> kThreadsAndChunk[] = {{1, 7}, {2, 1}, {3, 16}, {2, 64}, {3, 600}};
    for (const auto& [threads, chunk] : kThreadsAndChunk) {
      EXPECT_TRUE(all_logits(compute, threads, chunk) == expected)
          << threads << " threads, chunks of " << chunk << (compute == Compute::f32 ? ", float32" : "");
    }
  }
}

// An observer gets every step by itself; without one a dispatch covers a run of them.
TEST_P(Bits, DoNotDependOnFusion) {
  struct Nothing final : backend::StepObserver {
    void after_step(int, const ops::Buffer&, std::span<const float>, int) override {}
  } nothing;
  Runner single(plan, one_sequence(Compute::automatic));
  single.prepared().observe(&nothing);
  const std::vector<float> expected = single.prompt(tokens, static_cast<int>(tokens.size()), 600);
  constexpr std::pair<int, int> kThreadsAndChunk[] = {{2, 1}, {5, 2}, {3, 3}, {2, 7}, {5, 600}};
  for (const auto& [threads, chunk] : kThreadsAndChunk) {
    EXPECT_TRUE(all_logits(Compute::automatic, threads, chunk) == expected)
        << threads << " threads, chunks of " << chunk;
  }
}

// Times that the threads meet in a layer of a decoding step, by what the layer is made of.
TEST_P(Bits, ALayerHasFewPhases) {
  auto prepared = backend::prepare(plan, {.max_pages = 1}).value();
  std::map<int, int> phases;
  for (const backend::DispatchInfo& dispatch : prepared->schedule().dispatches) {
    phases[dispatch.layer] += dispatch.barriers;
  }
  std::map<int, bool> dense, experts, inputs;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const int layer = plan.step_layers[i];
    const auto* gated = std::get_if<ops::GatedPair>(&plan.steps[i]);
    dense[layer] |= gated != nullptr;
    inputs[layer] |= gated != nullptr && gated->side >= 0;
    experts[layer] |= std::holds_alternative<ops::Experts>(plan.steps[i]);
  }
  for (const auto& [layer, count] : phases) {
    if (layer < 0) continue;
    const int expected = experts[layer] ? (dense[layer] ? 8 : 6) : inputs[layer] ? 7 : 5;
    EXPECT_EQ(count, expected) << "layer " << layer;
  }
}

TEST_P(Bits, DoNotDependOnTheInstructionSetOrThePackedLayout) {
  tokens.resize(std::min(tokens.size(), kInstructionSetRows));
  for (const Compute compute : {Compute::automatic, Compute::f32}) {
    std::vector<float> expected;
    for (const cpu::KernelTable* table : cpu::available_tables()) {
      constexpr std::pair<int, bool> kChunkAndPacked[] = {{5, false}, {5, true}, {600, true}};
      for (const auto& [chunk, packed] : kChunkAndPacked) {
        const std::vector<float> logits = all_logits(compute, 2, chunk, table->name, packed);
        if (expected.empty()) expected = logits;
        EXPECT_TRUE(logits == expected) << table->name << (packed ? ", packed" : "") << ", chunks of " << chunk
                                        << (compute == Compute::f32 ? ", float32" : "");
      }
    }
  }
}

// Other sequences in the batch, at other positions and of other lengths; logits wanted of some rows only.
TEST_P(Bits, DoNotDependOnCompanyInTheBatch) {
  for (const Compute compute : {Compute::automatic, Compute::f32}) {
    const std::vector<float> expected = all_logits(compute, 1, 600);
    Runner runner(
        plan, {.prepare = {.compute = compute, .threads = 2, .max_batch_rows = 600}, .sequences = 4, .positions = 300});
    const auto vocabulary = static_cast<std::size_t>(plan.vocabulary_size);
    int compared = 0;
    const auto compare = [&](int sequence, std::int32_t position, std::span<const float> logits) {
      if (sequence != 2) return;
      ++compared;
      const auto* row = expected.data() + static_cast<std::size_t>(position) * vocabulary;
      EXPECT_TRUE(std::equal(logits.begin(), logits.end(), row)) << "position " << position;
    };
    std::size_t done = 0, round = 0;
    while (done < tokens.size()) {
      const std::size_t count = std::min(tokens.size() - done, std::size_t{1} + 13 * (round % 3));
      const auto mine = std::span(tokens).subspan(done, count);
      const auto theirs = std::span<const std::int32_t>(other).first(1 + 5 * (round % 4));
      const Runner::Piece pieces[] = {{0, theirs, 1},
                                      {1, theirs.first(1), 0},
                                      {2, mine, static_cast<int>(round % 2 == 0 ? count : 1)},
                                      {3, theirs, 1}};
      const std::size_t first = round % 3;  // not always the same neighbours
      runner.run(std::span(pieces).subspan(first), compare);
      done += count;
      ++round;
    }
    EXPECT_GT(compared, 30);
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, Bits, llama_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Dense, Bits, dense_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Mixture, Bits, mixture_rows(), [](const auto& row) { return oracle_row_name(row.param); });
// Experts whose weights lie apart in the file.
INSTANTIATE_TEST_SUITE_P(Folders, Bits, testing::Values(OracleRow{"qwen3-moe", "HF", Noise::routed}),
                         [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Mlx, Bits, mlx_rows(), [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Hybrid, Bits, hybrid_rows(), [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
