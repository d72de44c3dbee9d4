// How the rooms report failure. A caller's mistake or the world's refusal is a Result that carries a code, one
// sentence (what and where) and a hint (what to do). Our own bugs are ADZE_CHECK (check.hpp). No exception crosses a
// room.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace adze {

enum class ErrorCode {
  invalid_argument,          // the caller asked for something that makes no sense
  not_found,                 // a file, a model, a tensor, a setting
  corrupt_file,              // the file contradicts itself
  not_a_model,               // the file is something else
  unsupported_architecture,  // a family Adze does not have
  unsupported_feature,       // known, and refused by name
  unsupported_type,          // a block type Adze does not have
  out_of_memory,             // need and have are in the message
  context_full,              // prompt or conversation longer than the context
  limit_exceeded,            // a number of base/limits.hpp
  io,                        // the operating system refused
  disk_full,
  network,
  cancelled,
  non_finite,  // the model produced a non-finite logit
  template_error,
  timed_out,  // a deadline passed
};

// The snake_case name, stable: scripts and tests match on it.
std::string_view error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;  // what and where, one sentence, no final newline
  std::string hint;     // what to do; may be empty
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(hint)});
}

}  // namespace adze

// ADZE_TRY(auto x, f());  declares or assigns x, or returns f's error from the enclosing function.
#define ADZE_TRY(target, expression) ADZE_TRY_IMPL_(ADZE_TRY_CAT_(adze_try_, __LINE__), target, expression)
// ADZE_TRY_STATUS(f());  the same for a Status.
#define ADZE_TRY_STATUS(expression)                                                           \
  do {                                                                                        \
    auto adze_status_ = (expression);                                                         \
    if (!adze_status_) return tl::unexpected<::adze::Error>(std::move(adze_status_.error())); \
  } while (false)
#define ADZE_TRY_CAT2_(a, b) a##b
#define ADZE_TRY_CAT_(a, b) ADZE_TRY_CAT2_(a, b)
#define ADZE_TRY_IMPL_(temporary, target, expression)                                 \
  auto temporary = (expression);                                                      \
  if (!temporary) return tl::unexpected<::adze::Error>(std::move(temporary.error())); \
  target = std::move(*temporary)
