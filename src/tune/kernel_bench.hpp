// How long the backend takes for one kind of step alone: matrix products of one weight type, or attention. Measured
// through prepare() and run(), as the engine calls it, so the choice of kernel, packing, rounding of activations and
// barriers are in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.hpp"
#include "base/result.hpp"
#include "ops/work.hpp"
#include "tensor/dtype.hpp"

namespace adze::tune {

// A chain of square matrices, or layers of attention over `depth` positions.
class KernelBench {
 public:
  static constexpr int kWidth = 2048, kMatrices = 16;                                         // products
  static constexpr int kLayers = 8, kHeads = 9, kKvHeads = 3, kHeadSize = 64, kDepth = 2048;  // attention, SmolLM2's

  // The caller's options for kernels, threads and types; sizes are set here. The weights are random blocks of the type.
  // Errors: those of backend::prepare(); unsupported_type for one that Adze does not write.
  static Result<KernelBench> products(tensor::DType type, const backend::PrepareOptions& options,
                                      int matrices = kMatrices);
  static Result<KernelBench> attention(const backend::PrepareOptions& options);
  KernelBench(KernelBench&&) noexcept;
  KernelBench& operator=(KernelBench&&) noexcept;
  ~KernelBench();

  const std::string& kernel() const;  // the backend's word for what it chose
  // Seconds of one forward of `rows` rows, at most kMaxRows: the best of several.
  Result<double> seconds(int rows);
  // What it reads and multiplies.
  ops::Work work(int rows) const;

  static constexpr int kMaxRows = 256;

 private:
  struct State;
  explicit KernelBench(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace adze::tune
