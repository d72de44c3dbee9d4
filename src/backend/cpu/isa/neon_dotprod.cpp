// The kernels for one instruction set; everything but the table has internal linkage (tests/tidy checks the object).
#include <arm_neon.h>

#include "backend/cpu/kernels/source.hpp"

namespace adze::cpu {
namespace {
#include "backend/cpu/simd/neon.inl.h"
//
#include "backend/cpu/kernels/all.inl.h"
}  // namespace

constexpr KernelTable kNeonDotprodTable = make_table("neon_dotprod");

}  // namespace adze::cpu
