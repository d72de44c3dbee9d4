// "Did you mean": the known name nearest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace adze {

// The candidate at the smallest edit distance from `word`; empty when none is near (more than a third of it differs).
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

// "Did you mean 'x'?", or nothing when no candidate is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace adze
