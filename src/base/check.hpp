// ADZE_CHECK(condition, format, ...): our own invariants, always on, never reachable from input. Prints and aborts.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace adze::detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view detail);
}  // namespace adze::detail

#define ADZE_CHECK(condition, ...)                                                               \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::adze::detail::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)
