#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace adze::detail {

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
  std::fprintf(stderr, "adze: internal error at %s:%d: %s%s%.*s\nThis is a bug in Adze; please report it.\n", file,
               line, condition, detail.empty() ? "" : ": ", static_cast<int>(detail.size()), detail.data());
  std::abort();
}

}  // namespace adze::detail
