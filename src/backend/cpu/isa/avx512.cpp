// The kernels for one instruction set; everything but the table has internal linkage (tests/tidy checks the object).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernel_table.hpp"
#include "tensor/dtype.hpp"

// What must end up in its caller for a panel block to stay in registers.
#define ADZE_INLINE inline __attribute__((always_inline))

namespace adze::cpu {
namespace {
#include "backend/cpu/simd/avx512.inl.h"
//
#include "backend/cpu/kernels/math.inl.h"
//
#include "backend/cpu/kernels/quantise.inl.h"
//
#include "backend/cpu/kernels/panel.inl.h"
//
#include "backend/cpu/kernels/grouped.inl.h"
//
#include "backend/cpu/kernels/packed.inl.h"
//
#include "backend/cpu/kernels/matmul.inl.h"
//
#include "backend/cpu/kernels/attention.inl.h"
//
#include "backend/cpu/kernels/delta_net.inl.h"
//
#include "backend/cpu/kernels/limits.inl.h"
//
#include "backend/cpu/kernels/table.inl.h"
}  // namespace

constexpr KernelTable kAvx512Table = make_table("avx512");

}  // namespace adze::cpu
