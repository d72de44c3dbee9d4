#include "engine/stop_matcher.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "text/unicode.hpp"

namespace adze::engine {

Result<StopMatcher> StopMatcher::create(const std::vector<std::string>& stops) {
  if (stops.size() > limits::kMaxStops) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} stop strings were given, but at most {} are allowed", stops.size(), limits::kMaxStops),
                "leave some out");
  }
  StopMatcher matcher;
  for (const std::string& text : stops) {
    if (text.empty()) return fail(ErrorCode::invalid_argument, "a stop string is empty", "leave it out");
    if (text.size() > limits::kMaxStopBytes) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("a stop string has {} bytes, but at most {} are allowed", text.size(), limits::kMaxStopBytes),
          "shorten it");
    }
    if (!text::is_valid_utf8(text)) return fail(ErrorCode::invalid_argument, "a stop string is not UTF-8 text");
    Stop stop{.text = text, .fallback = std::vector<std::uint32_t>(text.size() + 1), .matched = 0};
    // The table is what the matcher itself does when the stop's tail is fed to it.
    for (std::size_t n = 1; n < text.size(); ++n) {
      advance(stop, text[n]);
      stop.fallback[n + 1] = static_cast<std::uint32_t>(stop.matched);
    }
    stop.matched = 0;
    matcher.stops_.push_back(std::move(stop));
  }
  return matcher;
}

void StopMatcher::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.fallback[stop.matched];
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

bool StopMatcher::feed(std::string_view text, std::string& out) {
  ADZE_CHECK(match_.empty(), "text after the stop string {}", match_);
  std::size_t held = 0;  // bytes at the end that may belong to a stop
  for (const char byte : text) {
    held_.push_back(byte);
    held = 0;
    const Stop* complete = nullptr;
    for (Stop& stop : stops_) {
      advance(stop, byte);
      held = std::max(held, stop.matched);
      if (stop.matched == stop.text.size() && (complete == nullptr || stop.matched > complete->matched)) {
        complete = &stop;
      }
    }
    if (complete != nullptr) {
      match_ = complete->text;
      out.append(held_, 0, held_.size() - match_.size());
      held_.clear();
      return true;
    }
  }
  if (text.empty()) return false;
  const std::size_t certain = held_.size() - held;
  out.append(held_, 0, certain);
  held_.erase(0, certain);
  return false;
}

void StopMatcher::flush(std::string& out) {
  out += held_;
  held_.clear();
  for (Stop& stop : stops_) stop.matched = 0;
}

}  // namespace adze::engine
