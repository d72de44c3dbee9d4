// A plan and its schedule, for people and for programs (`adze plan`).
#pragma once

#include <string>

#include "adze/adze.hpp"
#include "backend/backend.hpp"
#include "ops/plan.hpp"

namespace adze::engine {

// Dispatches with their steps, weights and kernels, and how often the threads meet; layers that read alike are told
// once.
std::string plan_text(const ModelInfo& info, const ops::Plan& plan, const backend::Schedule& schedule,
                      const backend::MemoryUse& memory);
// {"model", "architecture", "backend", "numeric_class", "route", "profile", "choices", "chunk", "context", "memory":
// {...}, "dispatches": [...], "steps": [...]}
std::string plan_json(const ModelInfo& info, const ops::Plan& plan, const backend::Schedule& schedule,
                      const backend::MemoryUse& memory);

}  // namespace adze::engine
