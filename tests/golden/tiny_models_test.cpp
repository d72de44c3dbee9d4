// Tiny trained models on real text: perplexity and greedy continuations beside the Hugging Face implementation in
// float32 on the unquantised weights. Needs ADZE_TEST_TINY_MODELS, a folder of Hugging Face folders NAME with
// NAME-Q8_0.gguf, oracle.json and perplexity.json in them, and val.txt beside them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "model/model.hpp"

namespace adze::test {
namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

struct TinyRow {
  const char* name;
  const char* type;           // "Q8_0", or "HF": the folder itself, whose weights are the oracle's own
  double perplexity = 0.002;  // how far it may be off, as a share
  float tie = 1e-3f;          // two best logits that are closer than this decide nothing
};

class TinyModel : public testing::TestWithParam<TinyRow> {
 protected:
  void SetUp() override {
    const char* all = std::getenv("ADZE_TEST_TINY_MODELS");
    const TinyRow& row = GetParam();
    if (all == nullptr) GTEST_SKIP() << "set ADZE_TEST_TINY_MODELS to the folder of tiny models for " << row.name;
    folder = std::filesystem::path(all) / row.name;
    const bool whole_folder = row.type == std::string_view("HF");
    auto loaded = model::Model::load(whole_folder ? folder : folder / (std::string(row.name) + "-Q8_0.gguf"));
    if (!loaded) throw std::runtime_error(loaded.error().message);
    model = std::make_shared<model::Model>(std::move(*loaded));
    auto vocabulary = model::load_tokenizer(model);
    if (!vocabulary) throw std::runtime_error(vocabulary.error().message);
    tokenizer = std::move(*vocabulary);
  }
  std::filesystem::path folder;
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
};

double log_probability(std::span<const float> logits, std::int32_t token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return static_cast<double>(logits[static_cast<std::size_t>(token)] - largest) - std::log(sum);
}

// Every fourth window: enough of the text, in a quarter of the time.
TEST_P(TinyModel, PerplexityIsThatOfTheUnquantisedModel) {
  const auto json = read_json(folder / "perplexity.json");
  std::stringstream source;
  source << std::ifstream(folder.parent_path() / "val.txt").rdbuf();
  const auto ids = tokenizer->encode(source.str());
  ASSERT_TRUE(ids.has_value());
  ASSERT_EQ(ids->size(), json.at("n_ids").get<std::size_t>());
  const auto width = json.at("window").get<std::size_t>();
  const std::size_t begin = json.at("bos_in_window").get<bool>() ? 1 : 0;  // each window starts with it
  const auto expected = json.at("nll_per_window").get<std::vector<double>>();
  double sum = 0, expected_sum = 0;
  int windows = 0;
  for (std::size_t w = 0; w < expected.size(); w += 4, ++windows) {
    std::vector<std::int32_t> window(begin, tokenizer->bos().value_or(-1));
    const auto text = std::span(*ids).subspan(w * (width - begin), width - begin);
    window.insert(window.end(), text.begin(), text.end());
    Runner runner(model->plan(), {.prepare = {.max_batch_rows = 512}, .positions = 512});
    const Runner::Piece piece{0, std::span(window).first(width - 1), static_cast<int>(width) - 1};
    double nll = 0;
    runner.run({&piece, 1}, [&](int, std::int32_t position, std::span<const float> logits) {
      nll -= log_probability(logits, window[static_cast<std::size_t>(position) + 1]);
    });
    sum += nll / static_cast<double>(width - 1);
    expected_sum += expected[w];
  }
  const double ratio = std::exp((sum - expected_sum) / windows);
  EXPECT_NEAR(ratio, 1.0, GetParam().perplexity);
  RecordProperty("ratio", std::to_string(ratio));
}

// Rounded weights move logits a little: a step at which the best two are closer than that decides nothing, and ends
// the comparison of its prompt.
TEST_P(TinyModel, GreedyTextIsThatOfTheUnquantisedModel) {
  const auto oracle = read_json(folder / "oracle.json");
  std::size_t compared = 0, total = 0;
  for (const auto& [name, prompt] : oracle.at("prompts").items()) {
    const auto ids = prompt.at("ids").get<std::vector<std::int32_t>>();
    const auto expected = prompt.at("greedy64").get<std::vector<std::int32_t>>();
    const auto margins = prompt.at("margin").get<std::vector<float>>();
    total += expected.size();
    Runner runner(model->plan(), {.prepare = {.compute = backend::Compute::f32, .max_batch_rows = 512}});
    std::vector<float> logits = runner.prompt(ids, 1, 512);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      const std::int32_t token = argmax(logits);
      if (token != expected[step]) {
        EXPECT_LT(margins[step], GetParam().tie) << name << ", step " << step;
        break;
      }
      ++compared;
      logits = runner.prompt({&token, 1}, 1, 1);
    }
  }
  EXPECT_EQ(total, 6u * 64u);
  EXPECT_GE(static_cast<double>(compared), 0.75 * static_cast<double>(total));
  RecordProperty("compared", static_cast<int>(compared));
}

INSTANTIATE_TEST_SUITE_P(Models, TinyModel,
                         testing::Values(TinyRow{"qwen3-tiny", "HF"}, TinyRow{"qwen3-tiny", "Q8_0", 0.01, 0.1f},
                                         TinyRow{"qwen3_5-tiny", "HF"}, TinyRow{"qwen3_5-tiny", "Q8_0", 0.01, 0.1f},
                                         TinyRow{"gemma4-tiny", "HF"}, TinyRow{"gemma4-tiny", "Q8_0", 0.01, 0.2f}),
                         [](const auto& row) {
                           std::string name = fmt::format("{}_{}", row.param.name, row.param.type);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace adze::test
