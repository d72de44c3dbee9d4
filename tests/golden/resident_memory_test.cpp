// What of a mixture's mapped file is in memory after a token: the experts that it was routed to, not the others. From a
// GGUF file and from a folder.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "format/gguf_writer.hpp"
#include "golden/folder_of_gguf.hpp"
#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

constexpr int kExperts = 8, kHidden = 256, kWidth = 1024, kVocabulary = 16;

// A Qwen3 MoE of one layer; each expert's matrix has 512 KiB. The embedding of token t is 1 at place t, which its
// router's row t looks for, and attention adds nothing.
std::string mixture_file() {
  format::GgufWriter out;
  out.add_string("general.architecture", "qwen3moe");
  const std::pair<const char*, std::uint32_t> kSizes[] = {{"block_count", 1},
                                                          {"context_length", 128},
                                                          {"embedding_length", kHidden},
                                                          {"vocab_size", kVocabulary},
                                                          {"attention.head_count", 1},
                                                          {"attention.head_count_kv", 1},
                                                          {"attention.key_length", 16},
                                                          {"attention.value_length", 16},
                                                          {"expert_count", kExperts},
                                                          {"expert_used_count", 1},
                                                          {"expert_feed_forward_length", kWidth}};
  for (const auto& [key, value] : kSizes) out.add_u32(fmt::format("qwen3moe.{}", key), value);
  out.add_f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
  std::vector<std::vector<std::byte>> kept;
  const auto add = [&](const char* name, const tensor::Shape& shape, std::uint16_t value, bool diagonal = false) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(shape.elements()), diagonal ? 0 : value);
    for (std::int64_t i = 0; diagonal && i < shape[0]; ++i) values[static_cast<std::size_t>(i * shape[1] + i)] = value;
    const auto bytes = std::as_bytes(std::span(values));
    kept.emplace_back(bytes.begin(), bytes.end());
    out.add_tensor(name, tensor::DType::bf16, shape, kept.back());
  };
  constexpr std::uint16_t kOne = 0x3f80, kSmall = 0x3c00, kNothing = 0;
  add("token_embd.weight", matrix(kVocabulary, kHidden), kOne, true);
  add("output.weight", matrix(kVocabulary, kHidden), kOne, true);
  add("output_norm.weight", vector(kHidden), kOne);
  add("blk.0.attn_norm.weight", vector(kHidden), kOne);
  add("blk.0.ffn_norm.weight", vector(kHidden), kOne);
  add("blk.0.attn_q_norm.weight", vector(16), kOne);
  add("blk.0.attn_k_norm.weight", vector(16), kOne);
  for (const char* part : {"q", "k", "v"})
    add(fmt::format("blk.0.attn_{}.weight", part).c_str(), matrix(16, kHidden), kNothing);
  add("blk.0.attn_output.weight", matrix(kHidden, 16), kNothing);
  add("blk.0.ffn_gate_inp.weight", matrix(kExperts, kHidden), kOne, true);
  add("blk.0.ffn_gate_exps.weight", {{kExperts, kWidth, kHidden, 1}, 3}, kSmall);
  add("blk.0.ffn_up_exps.weight", {{kExperts, kWidth, kHidden, 1}, 3}, kSmall);
  add("blk.0.ffn_down_exps.weight", {{kExperts, kHidden, kWidth, 1}, 3}, kSmall);
  return out.to_bytes();
}

// The share of these bytes that this process has mapped in, by /proc/self/pagemap; without the outer 64 KiB, which the
// kernel maps in together with their neighbours.
double resident(int pagemap, const std::byte* begin, std::size_t size) {
  constexpr std::uintptr_t kAround = 65536;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (at + kAround) / page, last = (at + size - kAround) / page;
  std::vector<std::uint64_t> entries(last - first);
  const auto bytes = static_cast<ssize_t>(entries.size() * sizeof(std::uint64_t));
  EXPECT_EQ(::pread(pagemap, entries.data(), static_cast<std::size_t>(bytes),
                    static_cast<off_t>(first * sizeof(std::uint64_t))),
            bytes);
  return static_cast<double>(std::ranges::count_if(entries, [](std::uint64_t e) { return e >> 63 != 0; })) /
         static_cast<double>(entries.size());
}

class ResidentMemory : public testing::Test {
 protected:
  void SetUp() override {
    pagemap_ = ::open("/proc/self/pagemap", O_RDONLY);
    if (pagemap_ < 0) GTEST_SKIP() << "there is no /proc/self/pagemap to read";
    if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "there is no /dev/shm to write to";
  }
  void TearDown() override { ::close(pagemap_); }

  // The experts that have all of their matrices in memory; each must have all or nothing.
  std::vector<int> resident_experts(const model::Model& model) const {
    std::vector<int> found;
    for (int expert = 0; expert < kExperts; ++expert) {
      double sum = 0.0;
      for (const ops::WeightRef weight : matrices_of(model)) {
        const std::int64_t rows = weight->rows() / kExperts;
        sum += resident(pagemap_, weight->row(expert * rows), weight->size_bytes() / kExperts);
      }
      EXPECT_TRUE(sum == 0.0 || sum == 3.0) << "expert " << expert << ": " << sum << " of 3 matrices";
      if (sum > 0.0) found.push_back(expert);
    }
    return found;
  }
  void expect_only_routed_experts(const model::Model& model) const {
    EXPECT_EQ(resident_experts(model), std::vector<int>{});  // loading reads no expert
    Runner runner(model.plan(), {.prepare = {.threads = 2, .max_batch_rows = 16}, .positions = 64});
    EXPECT_EQ(resident_experts(model), std::vector<int>{});  // nor does preparing
    const std::vector<std::int32_t> one{5}, others{2, 5, 2};
    (void)runner.prompt(one, 1, 16);
    EXPECT_EQ(resident_experts(model), std::vector<int>{5});
    (void)runner.prompt(others, 1, 16);
    EXPECT_EQ(resident_experts(model), (std::vector<int>{2, 5}));
  }

 private:
  static std::vector<ops::WeightRef> matrices_of(const model::Model& model) {
    for (const ops::Step& step : model.plan().steps) {
      if (const auto* experts = std::get_if<ops::Experts>(&step); experts != nullptr) {
        return {experts->routed.gate, experts->routed.up, experts->routed.down};
      }
    }
    return {};
  }
  int pagemap_ = -1;
};

TEST_F(ResidentMemory, HoldsOnlyTheExpertsThatRowsWereRoutedTo) {
  // Files there are kept in small pages; those on a disk may be mapped in 2 MiB at a time, neighbours included.
  const ModelFolder files("/dev/shm/adze_resident"), folder("/dev/shm/adze_resident_folder");
  files.write("mixture.gguf", mixture_file());
  const auto gguf = model::Model::load(files.path() / "mixture.gguf");
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  expect_only_routed_experts(*gguf);

  folder.write("config.json", R"({"model_type": "qwen3_moe", "num_hidden_layers": 1, "hidden_size": 256,
    "max_position_embeddings": 128, "vocab_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16,
    "num_experts": 8, "num_experts_per_tok": 1, "moe_intermediate_size": 1024, "norm_topk_prob": true,
    "intermediate_size": 1024})");
  folder.write_weights("model.safetensors", folder_tensors(*gguf));
  const auto model = model::Model::load(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  expect_only_routed_experts(*model);
}

}  // namespace
}  // namespace adze::test
