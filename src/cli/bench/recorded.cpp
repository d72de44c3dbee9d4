#include "cli/bench/recorded.hpp"

#include <array>
#include <cmath>

namespace adze::cli::bench {
namespace {

// Medians of up to seven runs of 2026-11-30, llama-bench and llama-batched-bench of that commit; with run-time
// repacking (-rtr 1) where that was faster, and for SmolLM2 in Q4_1 the best short burst of generation.
constexpr int kThreads = 2;
constexpr std::string_view kKernelSet = "avx512_vnni";

// The limits of that day: 90 MiB from the third-level cache, larger sets from memory; dpbusd on 512 bits.
constexpr double kReadCache = 58.8e9, kReadMemory = 33.4e9, kMultiply = 707e9;

struct Figure {
  Case::Kind kind;
  std::int64_t prompt_tokens;  // of a prompt
  std::int64_t depth;
  int batch;
  double tokens_per_second;
  bool by_memory;
};
constexpr Figure prompt(std::int64_t tokens, double rate) { return {Case::Kind::prompt, tokens, 0, 1, rate, false}; }
constexpr Figure generate(std::int64_t depth, double rate) { return {Case::Kind::generate, 0, depth, 1, rate, true}; }
constexpr Figure batch(int texts, double rate, bool by_memory) {
  return {Case::Kind::generate, 0, 0, texts, rate, by_memory};
}

struct Model {
  std::string_view architecture;
  double parameters, weight_bytes;  // in millions
  double read_rate;
  std::array<Figure, 6> figures;  // zero: not measured
};
constexpr Model kModels[] = {
    {"llama",
     134.5,
     96.6,
     kReadCache,
     {prompt(512, 1058), prompt(2048, 666.3), generate(0, 150), generate(4096, 33.3), batch(8, 274.3, true),
      batch(16, 292.1, false)}},
    {"llama",
     134.5,
     142.9,
     kReadCache,
     {prompt(512, 753.3), prompt(2048, 573.2), generate(0, 72.2), generate(4096, 28.1), batch(8, 295.2, true),
      batch(16, 306.2, false)}},
    {"qwen3",
     596,
     375.3,
     kReadMemory,
     {prompt(512, 250), generate(0, 35.0), batch(8, 78.8, true), batch(16, 81.0, true)}},
    {"qwen3",
     596,
     633.2,
     kReadMemory,
     {prompt(512, 210.1), generate(0, 18.9), batch(8, 69.7, true), batch(16, 68.9, true)}},
    {"qwen3", 596, 390.5, kReadMemory, {prompt(512, 252.2), generate(0, 24.7)}},
    {"qwen3", 596, 488.9, kReadMemory, {prompt(512, 237.9), generate(0, 21.0)}},
    {"llama", 1236, 762.9, kReadMemory, {prompt(512, 153), generate(0, 17.4)}},
    {"llama", 1236, 1313.0, kReadMemory, {prompt(512, 148.9), generate(0, 10.3)}},
    {"llama", 1236, 799.6, kReadMemory, {prompt(512, 150.1), generate(0, 14.2)}},
    {"llama", 1236, 1013.7, kReadMemory, {prompt(512, 140.5), generate(0, 12.0)}},
};

// The nearest two models are 4 % apart.
bool about(double value, double recorded) { return std::abs(value - recorded) <= 0.015 * recorded; }

bool is(const Model& model, const ModelInfo& info) {
  return model.architecture == info.architecture &&
         about(static_cast<double>(info.parameters) / 1e6, model.parameters) &&
         about(static_cast<double>(info.weight_bytes) / 1e6, model.weight_bytes);
}

bool is(const Figure& figure, const Case& what) {
  return figure.tokens_per_second > 0 && figure.kind == what.kind && figure.depth == what.depth &&
         figure.batch == what.batch && (what.kind == Case::Kind::generate || figure.prompt_tokens == what.tokens);
}

}  // namespace

std::optional<Recorded> find_recorded(const ModelInfo& model, const Case& what, int threads,
                                      std::string_view kernel_set) {
  if (threads != kThreads || kernel_set != kKernelSet) return std::nullopt;
  for (const Model& known : kModels) {
    if (!is(known, model)) continue;
    for (const Figure& figure : known.figures) {
      if (is(figure, what))
        return Recorded{figure.tokens_per_second, figure.by_memory ? known.read_rate : kMultiply, figure.by_memory};
    }
  }
  return std::nullopt;
}

}  // namespace adze::cli::bench
