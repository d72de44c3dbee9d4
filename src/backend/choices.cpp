#include "backend/choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace adze::backend {
namespace {

constexpr std::array<std::string_view, kKnobs> kKnobWords{"threads", "tile", "layout", "pair", "prefetch", "chunk"};
constexpr std::array<std::string_view, kRegimes> kRegimeWords{"one_short", "one_long", "few_short", "few_long", "many"};

template <class Enum, std::size_t N>
std::optional<Enum> value_of(const std::array<std::string_view, N>& words, std::string_view word) {
  const auto found = std::ranges::find(words, word);
  if (found == words.end()) return std::nullopt;
  return static_cast<Enum>(found - words.begin());
}

}  // namespace

std::string_view knob_word(Knob knob) { return kKnobWords[static_cast<std::size_t>(knob)]; }
std::string_view regime_word(Regime regime) { return kRegimeWords[static_cast<std::size_t>(regime)]; }
std::optional<Knob> knob_of(std::string_view word) { return value_of<Knob>(kKnobWords, word); }
std::optional<Regime> regime_of(std::string_view word) { return value_of<Regime>(kRegimeWords, word); }

std::string_view describe(Regime regime) {
  switch (regime) {
    case Regime::one_short: return "1 row, short context";
    case Regime::one_long: return "1 row, long context";
    case Regime::few_short: return "few rows, short context";
    case Regime::few_long: return "few rows, long context";
    case Regime::many: return "many rows";
  }
  return "";
}

std::string describe(Knob knob, int value) {
  switch (knob) {
    case Knob::threads: return fmt::format("{} thread{}", value, value == 1 ? "" : "s");
    case Knob::tile: return fmt::format("tiles of {} rows", value);
    case Knob::layout: return value != 0 ? "packed weights" : "weights as the file has them";
    case Knob::pair: return value != 0 ? "gate and up in one pass" : "gate and up as two products";
    case Knob::prefetch: return value == 0 ? "no prefetch" : fmt::format("prefetch {} bytes ahead", value);
    case Knob::chunk: return fmt::format("prompts in passes of {} rows", value);
  }
  return "";
}

const Choice* find_choice(std::span<const Choice> choices, Regime regime, Knob knob, std::string_view shape) {
  const auto found = std::ranges::find_if(
      choices, [&](const Choice& c) { return c.regime == regime && c.knob == knob && c.shape == shape; });
  return found == choices.end() ? nullptr : &*found;
}

}  // namespace adze::backend
