// The kernels for one instruction set; everything but the table has internal linkage (tests/tidy checks the object).
#include "backend/cpu/kernels/source.hpp"

namespace adze::cpu {
namespace {
#include "backend/cpu/simd/scalar.inl.h"
//
#include "backend/cpu/kernels/all.inl.h"
}  // namespace

constexpr KernelTable kScalarTable = make_table("scalar");

}  // namespace adze::cpu
