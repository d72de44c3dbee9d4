// All kernels, over the vector words that stand before (simd/), in the order in which they use each other.
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
