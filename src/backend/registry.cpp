// The one place that names backends.
#include "backend/backend.hpp"
#include "backend/cpu/cpu_backend.hpp"

namespace adze::backend {

MemoryUse estimate_memory(const ops::Plan& plan, const PrepareOptions& options) {
  return cpu::estimate_memory(plan, options);
}

Result<std::unique_ptr<Prepared>> prepare(const ops::Plan& plan, const PrepareOptions& options) {
  return cpu::prepare(plan, options);
}

}  // namespace adze::backend
