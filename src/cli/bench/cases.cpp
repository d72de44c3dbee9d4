#include "cli/bench/cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tune/samples.hpp"

namespace adze::cli::bench {

std::string_view kind_name(Case::Kind kind) {
  switch (kind) {
    case Case::Kind::prompt: return "prompt";
    case Case::Kind::generate: return "generate";
  }
  return "";
}

std::string Case::label() const {
  std::string label = fmt::format("{} {}", kind_name(kind), tokens);
  if (batch > 1) label += fmt::format(" x {}", batch);
  if (depth > 0) label += fmt::format(" at depth {}", depth);
  return label;
}

ForwardWork forward_of(const Engine& engine, const Case& what) {
  switch (what.kind) {
    case Case::Kind::prompt: return engine.forward_work(what.tokens, 1, 1, 0);
    case Case::Kind::generate:
      return engine.forward_work(what.batch, what.batch, what.batch, what.depth + what.tokens / 2);
  }
  return {};
}

Spread spread_of(std::vector<double> values) {
  const auto [least, most] = std::ranges::minmax(values);
  return {least, tune::median(std::move(values)), most};
}

}  // namespace adze::cli::bench
