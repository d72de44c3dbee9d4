#include "base/shared_library.hpp"

#include <dlfcn.h>

namespace adze {

Result<SharedLibrary> SharedLibrary::load(std::initializer_list<const char*> names, const char* package) {
  for (const char* name : names) {
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle);
  }
  return fail(ErrorCode::not_found, fmt::format("the library {} is not installed", *names.begin()),
              fmt::format("install the package {}", package));
}

void* SharedLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

}  // namespace adze
