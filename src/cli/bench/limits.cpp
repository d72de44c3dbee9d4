#include "cli/bench/limits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"
#include "cli/engine_setup.hpp"

namespace adze::cli::bench {
namespace {

// Working sets closer than a sixteenth are read equally fast.
bool alike(std::uint64_t a, std::uint64_t b) { return std::max(a, b) - std::min(a, b) <= std::max(a, b) / 16; }

}  // namespace

Bound bound_of(const ForwardWork& work, double read_rate, const backend::MultiplyRates& multiply) {
  const double bytes = work.weight_bytes + work.cache_bytes;
  const double reading = bytes / read_rate;
  const double multiplying = work.byte_products / multiply.bytes + work.float_products / multiply.floats;
  if (reading >= multiplying) return {.seconds = reading, .by_memory = true, .amount = bytes};
  return {.seconds = multiplying, .by_memory = false, .amount = work.byte_products + work.float_products};
}

std::string Bound::share_text(double measured) const {
  const char* unit = by_memory ? "GB/s" : "GMAC/s";
  return fmt::format("{:.1f} {} = {:.0f} % of {:.1f} {}", amount / measured / 1e9, unit, 100 * seconds / measured,
                     rate() / 1e9, unit);
}

std::vector<Limits::ReadRate>::const_iterator Limits::find(std::uint64_t working_set) const {
  return std::ranges::find_if(reads_, [&](const ReadRate& read) { return alike(read.working_set, working_set); });
}

Status Limits::measure(std::uint64_t working_set) {
  ADZE_TRY(const double rate, backend::measure_read_rate(kernel_set_, threads_, working_set));
  const auto known = find(working_set);
  if (known == reads_.end()) {
    reads_.push_back({working_set, rate});
  } else {
    double& best = reads_[static_cast<std::size_t>(known - reads_.begin())].rate;
    best = std::max(best, rate);
  }
  ADZE_TRY(const backend::MultiplyRates multiply, backend::measure_multiply_rates(kernel_set_, threads_));
  multiply_.bytes = std::max(multiply_.bytes, multiply.bytes);
  multiply_.floats = std::max(multiply_.floats, multiply.floats);
  return {};
}

double Limits::read_rate(std::uint64_t working_set) const {
  const auto read = find(working_set);
  ADZE_CHECK(read != reads_.end(), "no read rate of {} bytes", working_set);
  return read->rate;
}

Bound Limits::bound(const ForwardWork& work, std::uint64_t working_set) const {
  return bound_of(work, read_rate(working_set), multiply_);
}

Result<Team> team_of(const Context& context) {
  Team team;
  ADZE_TRY(team.kernel_set, backend::choose_kernel_set(kernel_set_of(context.settings())));
  ADZE_TRY(team.threads, thread_count(context));
  return team;
}

std::uint64_t working_set_of(const Engine& engine, const ForwardWork& work) {
  return engine.info().weight_bytes + static_cast<std::uint64_t>(work.cache_bytes);
}

}  // namespace adze::cli::bench
