// The kernels for one instruction set; everything but the table has internal linkage (tests/tidy checks the object).
#include <immintrin.h>

#include "backend/cpu/kernels/source.hpp"

namespace adze::cpu {
namespace {
#include "backend/cpu/simd/avx512.inl.h"
//
#include "backend/cpu/kernels/all.inl.h"
}  // namespace

constexpr KernelTable kAvx512Table = make_table("avx512");

}  // namespace adze::cpu
