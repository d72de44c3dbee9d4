// Libraries that only one command needs, loaded when it first works. Linked in the ordinary way, libcurl and its thirty
// dependencies would add 5 to 20 ms to the start of every adze command (measured), libcrypto another 1 to 4 ms, and
// libedit with its terminal tables 0.4 MB to a memory budget of 10.
#pragma once

#include <initializer_list>

#include "base/result.hpp"

namespace adze {

class SharedLibrary {
 public:
  // Tries the names in order; a loaded library stays loaded. Errors: not_found, with the Debian package that has it.
  static Result<SharedLibrary> load(std::initializer_list<const char*> names, const char* package);

  // function = the library's symbol of that name; false if it has none.
  template <class Function>
  bool bind(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
    return function != nullptr;
  }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* symbol(const char* name) const;
  void* handle_;
};

}  // namespace adze
