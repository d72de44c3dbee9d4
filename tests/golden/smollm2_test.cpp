// A real model against llama.cpp on the same file: greedy text and perplexity. Needs ADZE_TEST_MODEL, the path of
// SmolLM2-135M-Instruct.Q4_1.gguf (`adze list smollm2 --path`).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "golden/oracle.hpp"
#include "golden/runner.hpp"
#include "model/vocabulary.hpp"

namespace adze::test {
namespace {

using backend::Compute;

std::ifstream open_data(const char* name) {
  return std::ifstream(std::filesystem::path(ADZE_TEST_DATA) / "smollm2" / name);
}

nlohmann::json read_json(const char* name) {
  auto file = open_data(name);
  return nlohmann::json::parse(file);
}

class SmolLM2 : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* path = std::getenv("ADZE_TEST_MODEL");
    if (path == nullptr) return;
    auto loaded = model::Model::load(path);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    loaded_model = std::make_unique<model::Model>(std::move(*loaded));
    auto tokenizer = model::load_tokenizer(loaded_model->metadata(), {});
    if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
    loaded_tokenizer = std::move(*tokenizer);
  }
  static void TearDownTestSuite() {
    loaded_tokenizer.reset();
    loaded_model.reset();
  }
  void SetUp() override {
    if (loaded_model == nullptr) GTEST_SKIP() << "set ADZE_TEST_MODEL to SmolLM2-135M-Instruct.Q4_1.gguf";
  }

  static inline std::unique_ptr<model::Model> loaded_model;
  static inline std::shared_ptr<const text::Tokenizer> loaded_tokenizer;
};

struct Continuation {
  std::vector<std::int32_t> prompt, expected;
  std::vector<float> margins;
  std::vector<std::int32_t> tokens;
  bool over = false;
};

// All prompts as one ragged batch, a step at a time. A step at which llama.cpp's two best logits are closer than the
// tolerance decides nothing: there the comparison of that prompt ends.
TEST_F(SmolLM2, GreedyTextEqualsLlamaCpp) {
  const auto json = read_json("greedy.json");
  const float tolerance = json.at("tolerance").get<float>();
  std::vector<Continuation> texts;
  for (const auto& p : json.at("prompts")) {
    texts.push_back({.prompt = p.at("ids"), .expected = p.at("tokens"), .margins = p.at("margin"), .tokens = {}});
    const auto ids = loaded_tokenizer->encode(p.at("text").get<std::string>(), {.parse_special = true});
    ASSERT_TRUE(ids.has_value());
    EXPECT_EQ(*ids, texts.back().prompt);
  }
  Runner runner(loaded_model->plan(), {.prepare = {.compute = Compute::f32, .max_batch_rows = 512},
                                       .sequences = static_cast<int>(texts.size()),
                                       .positions = 512});
  std::size_t compared = 0, total = 0;
  const auto take = [&](int sequence, std::int32_t, std::span<const float> logits) {
    Continuation& text = texts[static_cast<std::size_t>(sequence)];
    const std::size_t step = text.tokens.size();
    text.tokens.push_back(argmax(logits));
    if (text.tokens.back() != text.expected[step]) {
      EXPECT_LT(text.margins[step], tolerance) << "prompt " << sequence << ", step " << step;
      text.over = true;
    } else {
      ++compared;
    }
  };
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Runner::Piece piece{static_cast<int>(i), texts[i].prompt, 1};
    runner.run({&piece, 1}, take);
    total += texts[i].expected.size();
  }
  for (std::size_t step = 1; step < texts.front().expected.size(); ++step) {
    std::vector<Runner::Piece> pieces;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (!texts[i].over) pieces.push_back({static_cast<int>(i), std::span(texts[i].tokens).last(1), 1});
    }
    runner.run(pieces, take);
  }
  EXPECT_EQ(total, 20u * 128u);
  EXPECT_GE(static_cast<double>(compared), 0.9 * static_cast<double>(total));
  RecordProperty("compared", static_cast<int>(compared));
}

double log_probability(std::span<const float> logits, std::int32_t token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return static_cast<double>(logits[static_cast<std::size_t>(token)] - largest) - std::log(sum);
}

// As llama-perplexity does it: windows of 512 tokens, the second half of each counts.
TEST_F(SmolLM2, PerplexityEqualsLlamaCpp) {
  const auto json = read_json("perplexity.json");
  std::stringstream text;
  text << open_data("perplexity.txt").rdbuf();
  std::string source = text.str();
  source.pop_back();  // the final newline
  const auto ids = loaded_tokenizer->encode(source);
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(ids->size(), 9082u);

  constexpr int kWindow = 512, kFirst = 256;
  const auto windows = static_cast<int>(ids->size()) / kWindow;
  EXPECT_EQ(windows, json.at("chunks").get<int>());
  Runner runner(loaded_model->plan(),
                {.prepare = {.max_batch_rows = kWindow}, .sequences = windows, .positions = kWindow});
  double sum = 0;
  int terms = 0;
  for (int w = 0; w < windows; ++w) {
    const auto window = std::span(*ids).subspan(static_cast<std::size_t>(w) * kWindow, kWindow);
    const Runner::Piece piece{w, window.first(kWindow - 1), kWindow - 1 - kFirst};
    runner.run({&piece, 1}, [&](int, std::int32_t position, std::span<const float> logits) {
      sum += log_probability(logits, window[static_cast<std::size_t>(position) + 1]);
      ++terms;
    });
  }
  const double perplexity = std::exp(-sum / terms);
  const double expected = json.at("llama_cpp_q4_1").get<double>();
  EXPECT_EQ(terms, 4335);
  EXPECT_NEAR(perplexity, expected, 0.005 * expected);
  RecordProperty("perplexity", std::to_string(perplexity));
}

}  // namespace
}  // namespace adze::test
