#include "golden/accuracy_table.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace adze::test {
namespace {

constexpr std::array<std::string_view, 4> kPrompts{"p1", "p7", "p70", "p600"};

using Errors = std::map<std::string, double, std::less<>>;  // by prompt
std::map<std::tuple<std::string, std::string, Path>, Errors>& measured() {
  static std::map<std::tuple<std::string, std::string, Path>, Errors> table;
  return table;
}

std::string cell(const Errors& errors, std::string_view prompt) {
  const auto found = errors.find(prompt);
  return found == errors.end() ? std::string() : fmt::format("{:.1e}", found->second);
}

std::string markdown() {
  std::string out =
      "# Accuracy\n\n"
      "Every oracle file through the CPU backend: the root mean square difference of the last logits from Hugging "
      "Face's\n"
      "implementation in float32 (for quantised files: over the dequantised weights), divided by the logits' standard\n"
      "deviation, for prompts of 1, 7, 70 and 600 tokens. `f32` is --compute f32 and has to stay under 1e-4; `auto` is "
      "what\n"
      "runs by default, with int8 activations where weights are quantised (tolerances: tests/golden/backend_test.cpp). "
      "The\n"
      "models have random weights, which amplify rounding far more than trained ones. Rows `MLX_4BIT` and `MLX_8BIT` "
      "are "
      "held\n"
      "against what MLX computes in float32.\n\n"
      "Made by `ADZE_ACCURACY_TABLE=docs/accuracy.md build/release/tests/golden/golden_backend_test "
      "--gtest_filter='*Accuracy*'`,\n"
      "with ADZE_TEST_ORACLES set to the folder of all oracles.\n\n"
      "| model | type | compute | 1 | 7 | 70 | 600 |\n|---|---|---|---|---|---|---|\n";
  for (const auto& [key, errors] : measured()) {
    const auto& [model, type, path] = key;
    out += fmt::format("| {} | {} | {} |", model, type, path == Path::float32 ? "f32" : "auto");
    for (const std::string_view prompt : kPrompts) out += fmt::format(" {} |", cell(errors, prompt));
    out += '\n';
  }
  return out;
}

class Table : public testing::Environment {
 public:
  void TearDown() override {
    if (measured().empty()) return;
    const std::string text = markdown();
    fmt::print("{}", text);
    if (const char* path = std::getenv("ADZE_ACCURACY_TABLE")) std::ofstream(path) << text;
  }
};
const testing::Environment* const kRegistered = testing::AddGlobalTestEnvironment(new Table);

}  // namespace

void record_accuracy(const OracleRow& row, Path path, std::string_view prompt, double rel_rms) {
  measured()[{row.model, row.type, path}][std::string(prompt)] = rel_rms;
}

}  // namespace adze::test
