// The CPU backend: a plan becomes a list of dispatches, each run by every member of a thread team over its share of the
// outputs, with a barrier between them. Threads split outputs, never a reduction, so their number changes no bit.
#pragma once

#include <memory>

#include "backend/backend.hpp"

namespace adze::cpu {

backend::MemoryUse estimate_memory(const ops::Plan& plan, const backend::PrepareOptions& options);
Result<std::unique_ptr<backend::Prepared>> prepare(const ops::Plan& plan, const backend::PrepareOptions& options);

}  // namespace adze::cpu
