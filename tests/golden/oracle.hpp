// What a family's golden tests share: the oracle models of tests/data/oracles, their expected logits and greedy texts,
// and variants of model files made in memory. A new family adds rows to a test's table, not code.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "model/model.hpp"
#include "support/model_folder.hpp"
#include "support/safetensors_fixture.hpp"

namespace adze::test {

// What rounding activations may cost a family's last logits, by the README of the oracles.
enum class Noise : std::uint8_t {
  dense,      // every prompt within the type's tolerance
  sensitive,  // recurrent layers and Gemma: the median of the prompts under 0.15, each under 0.4
  routed,     // experts: a near-tie may choose another one, so only the median counts
};

// One model file of the oracles.
struct OracleRow {
  const char* model;  // folder
  const char* type;   // of the file: "Q4_K_M"; "F32" is the BF16 file widened, "HF" and "MLX_4BIT" are folders
  Noise noise = Noise::dense;
};
// The folder of an oracle model: in the repository, else under $ADZE_TEST_ORACLES/models; empty when it is in neither,
// and the test should skip.
std::filesystem::path oracle_folder(const std::string& model);
std::string oracle_row_name(const OracleRow& row);  // for GoogleTest: letters, digits and underscores
// Why the row cannot be tested here, for GTEST_SKIP; empty where it can.
std::string missing_oracle(const OracleRow& row);

// A test over rows of oracle models; skips aloud what is not there.
class OracleTest : public testing::TestWithParam<OracleRow> {
 protected:
  void SetUp() override {
    if (const std::string why = missing_oracle(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

struct GreedyText {
  std::vector<std::int32_t> tokens;
  std::vector<float> margins;  // between the two best logits of each step
};

// An oracle folder; throws std::runtime_error with one sentence when a file is missing.
class Oracle {
 public:
  // `folder` is a name for oracle_folder(), or an absolute path.
  explicit Oracle(const std::filesystem::path& folder);

  std::filesystem::path gguf(std::string_view type) const;
  std::filesystem::path hugging_face(std::string_view type = "HF") const;  // the folder with config.json
  std::vector<std::int32_t> prompt(const std::string& name) const { return prompts_.at(name); }
  // That folder where the oracle ships no weights for it: written from the GGUF file of the same weights.
  std::unique_ptr<ModelFolder> write_folder() const;
  // The context to load the model for, so that it computes this prompt as the oracle did; 0: any.
  std::int64_t context(const std::string& prompt) const;
  // Last logits: of the unquantised model for F32, BF16 and HF, else of the dequantised weights.
  std::vector<float> last_logits(std::string_view type, std::string_view prompt) const;
  // With the inputs of matrix products rounded to int8; nothing where the folder has none, or where its rounding ties
  // make them no exact target (llama.cpp itself is 1e-5 or more away).
  std::optional<std::vector<float>> tight_int8_logits(std::string_view type, std::string_view prompt) const;
  // Greedy continuation of a prompt; empty when the folder has none for this type.
  GreedyText greedy(std::string_view type, const std::string& prompt) const;
  const SafetensorsFixture& expected() const { return expected_; }

 private:
  bool is_exact(std::string_view type) const;

  std::filesystem::path folder_;
  std::map<std::string, std::vector<std::int32_t>> prompts_;
  std::map<std::string, std::int64_t> contexts_;
  std::map<std::string, GreedyText> greedy_;  // "type.prompt"; float types without "type."
  std::map<std::string, double> int8_deviation_;
  SafetensorsFixture expected_;
  std::optional<SafetensorsFixture> quantised_, int8_, mlx_;
};

// Root mean square of the difference over the standard deviation of the expected values.
double rel_rms(std::span<const float> actual, std::span<const float> expected);
std::int32_t argmax(std::span<const float> logits);  // ties to the lowest id

// A model file rewritten in memory: keys and tensors replaced, added or left out.
class GgufVariant {
 public:
  explicit GgufVariant(const std::filesystem::path& base);

  GgufVariant& remove_key(std::string_view key);
  GgufVariant& set_u32(std::string_view key, std::uint32_t value);
  GgufVariant& set_f32(std::string_view key, float value);
  GgufVariant& set_bool(std::string_view key, bool value);
  GgufVariant& set_string(std::string_view key, std::string_view value);
  GgufVariant& set_u32s(std::string_view key, const std::vector<std::uint32_t>& values);
  GgufVariant& remove_tensor(std::string_view name);
  GgufVariant& set_tensor(std::string_view name, tensor::DType type, const tensor::Shape& shape,
                          std::vector<std::byte> bytes);
  GgufVariant& set_floats(std::string_view name, const tensor::Shape& shape, std::span<const float> values);
  GgufVariant& widen_to_f32();  // every BF16 tensor

  const tensor::TensorView& tensor(std::string_view name) const;
  std::vector<float> floats(std::string_view name) const;  // dequantised

  Result<model::Model> load(const model::ModelOptions& options = {});  // the variant must outlive the model
  std::string to_bytes() const;

 private:
  struct Tensor {
    std::string name;
    tensor::DType type;
    tensor::Shape shape;
    std::vector<std::byte> bytes;
  };
  struct Number {  // a scalar or an array of them
    enum class Kind : std::uint8_t { u32, f32, boolean, string, u32s } kind;
    std::uint32_t u32 = 0;
    float f32 = 0;
    std::string string{};
    std::vector<std::uint32_t> u32s{};
  };
  GgufVariant& set(std::string_view key, Number value);

  format::GgufFile file_;
  std::map<std::string, std::optional<Number>, std::less<>> keys_;  // no value: removed
  std::map<std::string, std::optional<Tensor>, std::less<>> tensors_;
  std::string bytes_;
};

// A 2-d and a 1-d shape.
tensor::Shape matrix(std::int64_t rows, std::int64_t columns);
tensor::Shape vector(std::int64_t columns);

// The file of a row, F32 included. Both must outlive what is loaded from them.
struct OracleModel {
  std::optional<GgufVariant> variant;
  std::unique_ptr<ModelFolder> folder;
  std::optional<model::Model> model;
};
OracleModel load_oracle(const Oracle& oracle, std::string_view type, const model::ModelOptions& options = {});
OracleModel load_oracle(const Oracle& oracle, std::string_view type, const char* prompt);  // for a prompt's context

}  // namespace adze::test
