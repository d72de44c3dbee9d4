// Mixtures of experts as MLX keeps them: the experts of a layer stacked, quantised or not, and gpt-oss's MXFP4 in MLX's
// mode of that name. The oracle's folder is rewritten the way that MLX converts it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "support/mlx_weight.hpp"
#include "support/model_folder.hpp"

namespace adze::test {
namespace {

using tensor::DType;

std::vector<FolderTensor> tensors_of(const std::filesystem::path& folder) {
  const auto file = SafetensorsFixture::open(folder / "model.safetensors");
  std::vector<FolderTensor> tensors;
  for (const std::string& name : file.names()) {
    const auto bytes = file.bytes(name);
    tensors.push_back({name, file.array(name).dtype, file.array(name).shape, {bytes.begin(), bytes.end()}});
  }
  return tensors;
}

// config.json with another member in front.
std::string config_with(const std::filesystem::path& folder, std::string_view member) {
  std::ifstream file(folder / "config.json");
  std::string text(std::istreambuf_iterator<char>(file), {});
  return text.insert(text.find('{') + 1, member);
}

std::vector<float> logits(const std::filesystem::path& folder, std::span<const std::int32_t> prompt,
                          backend::Compute compute) {
  const auto model = model::Model::load(folder);
  if (!model) throw std::runtime_error(model.error().message);
  EXPECT_TRUE(model->notes().empty());
  Runner runner(model->plan(), {.prepare = {.compute = compute, .threads = 2, .max_batch_rows = 70}});
  return runner.prompt(prompt, 1, 64);
}

// "experts.3.up_proj.weight" of all experts as one "switch_mlp.up_proj.weight".
std::vector<FolderTensor> stacked(const std::vector<FolderTensor>& tensors) {
  std::vector<FolderTensor> out;
  std::map<std::string, std::map<int, const FolderTensor*>> experts;
  for (const FolderTensor& tensor : tensors) {
    const std::size_t at = tensor.name.find("mlp.experts.");
    if (at == std::string::npos) {
      out.push_back(tensor);
      continue;
    }
    const std::size_t number = at + std::strlen("mlp.experts."), rest = tensor.name.find('.', number);
    const int expert = std::stoi(tensor.name.substr(number, rest - number));
    experts[tensor.name.substr(0, at) + "mlp.switch_mlp" + tensor.name.substr(rest)][expert] = &tensor;
  }
  for (const auto& [name, parts] : experts) {
    const FolderTensor& first = *parts.at(0);
    FolderTensor whole{
        name, first.dtype, {static_cast<std::int64_t>(parts.size()), first.shape[0], first.shape[1]}, {}};
    for (const auto& [expert, part] : parts)
      whole.bytes.insert(whole.bytes.end(), part->bytes.begin(), part->bytes.end());
    out.push_back(std::move(whole));
  }
  return out;
}

TEST(MlxMixture, StackedExpertsAreThoseThatLieApart) {
  if (const std::string why = missing_oracle({"qwen3_5-moe", "HF"}); !why.empty()) GTEST_SKIP() << why;
  const Oracle oracle("qwen3_5-moe");
  const ModelFolder folder("adze_mlx_stacked");
  folder.write("config.json", config_with(oracle.hugging_face(), ""));
  folder.write_weights("model.safetensors", stacked(tensors_of(oracle.hugging_face())));
  const auto prompt = oracle.prompt("p70");
  EXPECT_TRUE(logits(folder.path(), prompt, backend::Compute::f32) ==
              logits(oracle.hugging_face(), prompt, backend::Compute::f32));
}

// Everything that MLX quantises is: router, shared expert and its gate, the embedding.
TEST(MlxMixture, QuantisedExpertsHaveTheBitsOfTheirDequantisedModel) {
  if (const std::string why = missing_oracle({"qwen3_5-moe", "HF"}); !why.empty()) GTEST_SKIP() << why;
  const Oracle oracle("qwen3_5-moe");
  std::vector<FolderTensor> quantised, plain;
  for (const FolderTensor& tensor : stacked(tensors_of(oracle.hugging_face()))) {
    plain.push_back(tensor);
    const std::int64_t columns = tensor.shape.back();
    if (tensor.shape.size() == 1 || columns % 32 != 0) {
      quantised.push_back(tensor);
      continue;
    }
    const std::int64_t rows = static_cast<std::int64_t>(tensor.bytes.size()) / 2 / columns;
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    tensor::dequantise_row(DType::bf16, tensor.bytes.data(), values.data(), rows * columns);
    const bool gate = tensor.name.ends_with("gate.weight");  // routers
    const MlxWeight weight(gate ? DType::mlx_8 : DType::mlx_4, rows, columns, values, 32);
    const std::vector<float> stored = weight.values();
    const auto bytes = std::as_bytes(std::span(stored));
    plain.back().dtype = "F32";
    plain.back().bytes.assign(bytes.begin(), bytes.end());
    const std::string module = tensor.name.substr(0, tensor.name.size() - std::strlen(".weight"));
    const auto add = [&](const char* part, const char* dtype, std::int64_t last, std::span<const std::byte> data) {
      std::vector<std::int64_t> shape = tensor.shape;
      shape.back() = last;
      quantised.push_back({fmt::format("{}.{}", module, part), dtype, shape, {data.begin(), data.end()}});
    };
    add("weight", "U32", columns / (gate ? 4 : 8), weight.codes());
    add("scales", "BF16", columns / 32, weight.scales());
    add("biases", "BF16", columns / 32, weight.biases());
  }
  const ModelFolder mlx("adze_mlx_experts"), dequantised("adze_mlx_experts_plain");
  mlx.write("config.json", config_with(oracle.hugging_face(), R"("quantization": {"group_size": 32, "bits": 4},)"));
  mlx.write_weights("model.safetensors", quantised);
  dequantised.write("config.json", config_with(oracle.hugging_face(), ""));
  dequantised.write_weights("model.safetensors", plain);
  const auto prompt = oracle.prompt("p70");
  EXPECT_TRUE(logits(mlx.path(), prompt, backend::Compute::f32) ==
              logits(dequantised.path(), prompt, backend::Compute::f32));
}

// Every second row of a weight [E, n, ...] or vector [E, n], from row `first` on.
FolderTensor every_second(const FolderTensor& tensor, std::size_t first, std::string name) {
  FolderTensor out{std::move(name), tensor.dtype, tensor.shape, {}};
  out.shape[1] /= 2;
  const auto rows = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
  const std::size_t stride = tensor.bytes.size() / rows;
  for (std::size_t row = first; row < rows; row += 2) {
    const auto* from = tensor.bytes.data() + row * stride;
    out.bytes.insert(out.bytes.end(), from, from + stride);
  }
  return out;
}

// The bytes of [..., columns / 32, 16] are MLX's words [..., columns / 8].
FolderTensor as_words(FolderTensor blocks) {
  if (blocks.shape.size() != 4) return blocks;
  blocks.dtype = "U32";
  blocks.shape = {blocks.shape[0], blocks.shape[1], blocks.shape[2] * 4};
  return blocks;
}

TEST(MlxMixture, Mxfp4ExpertsAreThoseOfTheCheckpoint) {
  if (const std::string why = missing_oracle({"gpt-oss", "HF_MXFP4"}); !why.empty()) GTEST_SKIP() << why;
  const Oracle oracle("gpt-oss");
  const std::filesystem::path origin = oracle.hugging_face("HF_MXFP4");
  constexpr std::pair<std::string_view, std::string_view> kSuffixes[] = {
      {"_blocks", ".weight"}, {"_scales", ".scales"}, {"_bias", ".bias"}};
  std::vector<FolderTensor> tensors;
  for (FolderTensor& tensor : tensors_of(origin)) {
    const std::size_t at = tensor.name.find(".mlp.experts.");
    if (at == std::string::npos) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    const std::string experts = tensor.name.substr(0, at + std::strlen(".mlp.experts."));
    for (const auto& [theirs, mlx] : kSuffixes) {
      if (!tensor.name.ends_with(theirs)) continue;
      if (tensor.name.find("gate_up_proj") == std::string::npos) {
        tensor.name = fmt::format("{}down_proj{}", experts, mlx);
        tensors.push_back(as_words(tensor));
      } else {
        tensors.push_back(as_words(every_second(tensor, 0, fmt::format("{}gate_proj{}", experts, mlx))));
        tensors.push_back(as_words(every_second(tensor, 1, fmt::format("{}up_proj{}", experts, mlx))));
      }
      break;
    }
  }
  const ModelFolder folder("adze_mlx_mxfp4");
  folder.write("config.json",
               config_with(origin, R"("quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"},)"));
  folder.write_weights("model.safetensors", tensors, 3);
  const auto prompt = oracle.prompt("p70");
  for (const backend::Compute compute : {backend::Compute::f32, backend::Compute::automatic}) {
    EXPECT_TRUE(logits(folder.path(), prompt, compute) == logits(origin, prompt, compute));
  }
}

}  // namespace
}  // namespace adze::test
