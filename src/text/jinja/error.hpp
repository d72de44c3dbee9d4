// The room's one exception. It never leaves the room: ChatTemplate catches it and returns an Error.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace adze::text::jinja {

struct Failure : std::exception {
  Failure(ErrorCode c, std::string t, std::string m, int l)
      : code(c), type(std::move(t)), message(std::move(m)), line(l) {}
  const char* what() const noexcept override { return message.c_str(); }

  ErrorCode code;
  std::string type;     // Python's or Jinja's class name, "TypeError"; empty for limits
  std::string message;  // theirs, without the type
  int line;             // of the template; 0: not known yet, filled in on the way out
};

// Throws a Failure of code template_error.
[[noreturn]] void raise(std::string_view type, std::string message);
[[noreturn]] inline void raise_type_error(std::string message) { raise("TypeError", std::move(message)); }
[[noreturn]] inline void raise_value_error(std::string message) { raise("ValueError", std::move(message)); }

// Throws a Failure of code limit_exceeded.
[[noreturn]] void raise_limit(std::string message);

}  // namespace adze::text::jinja
