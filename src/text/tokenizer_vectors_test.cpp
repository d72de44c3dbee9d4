// Every vector of the oracle sets, exactly: from tokenizer.json, and from a neutral spec that names its pre-tokenizer.
#include "text/tokenizer_vectors.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace adze::text::vectors {
namespace {

class Synthetic : public testing::TestWithParam<const char*> {};
class SyntheticByName : public Synthetic {};  // the byte-level ones, whose pre-tokenizer GGUF names

TEST_P(Synthetic, FromTokenizerJson) {
  const std::string name = GetParam();
  const fs::path dir = data_dir() / "synthetic";
  check_all(make(load_spec(dir / (name + ".tokenizer.json"))), dir / (name + ".vectors.json"));
}

TEST_P(SyntheticByName, FromNamedPreTokenizer) {
  const std::string name = GetParam();
  const fs::path dir = data_dir() / "synthetic";
  TokenizerSpec spec = load_spec(dir / (name + ".tokenizer.json"));
  spec.stages.clear();
  spec.pre_tokenizer = name;
  check_all(make(std::move(spec)), dir / (name + ".vectors.json"));
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

#define ADZE_BYTE_LEVEL \
  "deepseek-coder", "deepseek-v3", "gpt-4o", "gpt2", "llama-bpe", "qwen2", "qwen35", "smollm", "tekken"
INSTANTIATE_TEST_SUITE_P(All, Synthetic, testing::Values("gemma3", "gemma4", ADZE_BYTE_LEVEL), test_name);
INSTANTIATE_TEST_SUITE_P(All, SyntheticByName, testing::Values(ADZE_BYTE_LEVEL), test_name);

TEST(RealVectors, SmolLm2) {
  const fs::path dir = data_dir() / "real";
  check_all(make(load_spec(dir / "smollm2.tokenizer.json")), dir / "smollm2.vectors.json");
}

}  // namespace
}  // namespace adze::text::vectors
