// What a source of kernels includes first, before its vector words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernel_table.hpp"
#include "tensor/dtype.hpp"

// What must end up in its caller for vectors to stay in registers.
#define ADZE_INLINE inline __attribute__((always_inline))
