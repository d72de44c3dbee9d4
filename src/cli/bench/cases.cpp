#include "cli/bench/cases.hpp"

#include <fmt/format.h>

#include <algorithm>

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
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

}  // namespace adze::cli::bench
