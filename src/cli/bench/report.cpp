#include "cli/bench/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/recorded.hpp"
#include "cli/json_writer.hpp"

namespace adze::cli::bench {
namespace {

std::string spread_text(const std::vector<double>& rates) {
  if (rates.empty()) return "";
  const Spread spread = spread_of(rates);
  return fmt::format("{:.1f} / {:.1f} / {:.1f}", spread.least, spread.median, spread.most);
}

}  // namespace

double Row::share() const {
  return spread_of(rates).median * bound.seconds / static_cast<double>(what.tokens_per_forward());
}

std::optional<double> Row::ratio() const {
  std::optional<double> better = recorded;
  if (!peer_rates.empty()) better = std::max(better.value_or(0), spread_of(peer_rates).median);
  if (!better) return std::nullopt;
  return spread_of(rates).median / *better;
}

std::string Report::text() const {
  std::string out = fmt::format("{}, {} threads, {}, weights {}\n{}\n", model.name, threads, kernel_set,
                                packed_bytes > 0 ? "packed" : "as in the file", model.numeric_class);
  for (const Row& row : rows) {
    const Spread spread = spread_of(row.rates);
    const double forward = static_cast<double>(row.what.tokens_per_forward()) / spread.median;
    out += fmt::format("{:<28} {:>9.1f} tokens/s  (min {:.1f}, max {:.1f}; {})\n", row.what.label(), spread.median,
                       spread.least, spread.most, row.bound.share_text(forward));
  }
  if (!logits_hash.empty()) out += fmt::format("logits {}  ", logits_hash);
  out += fmt::format("route {}\n", model.route_digest);
  return out;
}

std::string Report::markdown() const {
  const bool has_recorded = std::ranges::any_of(rows, [](const Row& row) { return row.recorded.has_value(); });
  std::string out = fmt::format(
      "| {}, {} threads | Adze | of the limit | {} |{} ratio to the better |\n|---|---|---|---|{}---|\n", model.name,
      threads, peer, has_recorded ? fmt::format(" {}, recorded and scaled |", kRecordedPeer) : "",
      has_recorded ? "---|" : "");
  for (const Row& row : rows) {
    out += fmt::format("| {} | {} | {:.0f} % | {} |", row.what.label(), spread_text(row.rates), 100 * row.share(),
                       spread_text(row.peer_rates));
    if (has_recorded) out += row.recorded ? fmt::format(" {:.1f} |", *row.recorded) : " |";
    const auto ratio = row.ratio();
    out += ratio ? fmt::format(" {:.2f} |\n", *ratio) : " |\n";
  }
  return out;
}

std::string Report::json() const {
  JsonWriter json;
  json.begin_object()
      .field("model", model.name)
      .field("architecture", model.architecture)
      .field("parameters", model.parameters)
      .field("file_bytes", model.file_bytes)
      .field("weight_bytes", model.weight_bytes)
      .field("packed_bytes", packed_bytes)
      .field("processor", processor)
      .field("threads", threads)
      .field("kernel_set", kernel_set)
      .field("numeric_class", model.numeric_class)
      .field("route_digest", model.route_digest)
      .field("logits_hash", logits_hash)
      .field("peer", peer)
      .field("peak_memory_bytes", peak_memory_bytes);
  json.key("cases").begin_array();
  for (const Row& row : rows) {
    json.begin_object()
        .field("case", row.what.label())
        .field("kind", kind_name(row.what.kind))
        .field("tokens", row.what.tokens)
        .field("depth", row.what.depth)
        .field("batch", row.what.batch)
        .list("tokens_per_second", row.rates)
        .field("bound", row.bound.by_memory ? "memory" : "compute")
        .field("limit_per_second", row.bound.rate())  // bytes or multiply-adds
        .field("limit_tokens_per_second", static_cast<double>(row.what.tokens_per_forward()) / row.bound.seconds)
        .field("share_of_limit", row.share());
    if (!row.peer_rates.empty()) json.list("peer_tokens_per_second", row.peer_rates);
    if (row.recorded) json.field("recorded_peer", kRecordedPeer).field("recorded_tokens_per_second", *row.recorded);
    if (const auto ratio = row.ratio()) json.field("ratio", *ratio);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

}  // namespace adze::cli::bench
