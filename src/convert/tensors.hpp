// The tensors of a GGUF file, out of a folder's: names and shapes from the family's table, rows and columns in the
// order that GGUF has them. Nothing is computed or copied before the file is written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "convert/metadata.hpp"
#include "format/gguf_writer.hpp"
#include "model/registry.hpp"
#include "tensor/view.hpp"

namespace adze::convert {

struct OutTensor {
  std::string name;
  tensor::Shape shape;
  bool vector = false;                       // norms, biases, factors: float32 in every file
  const tensor::TensorView* from = nullptr;  // null: `values`
  std::shared_ptr<const void> part{};        // what `from` points into where it is a part of the model\'s weight
  std::vector<std::int64_t> rows{};          // row i of the file is row rows[i] of `from`; empty: i
  std::vector<std::int64_t> columns{};       // the same for columns
  std::vector<float> values{};
};

// All tensors, layer by layer. `meant` is the model as the folder says, `read` as the file will say: what differs
// between them decides which tensors are rearranged.
std::vector<OutTensor> list_tensors(const model::Family& family, const model::Weights& weights,
                                    const model::Hyperparameters& meant, const model::Hyperparameters& read);

// Of a model without weights: the tensors that its family requires, `from` null and `values` empty but for rope
// factors.
std::vector<OutTensor> list_tensors(const model::Family& family, const model::Hyperparameters& meant);

ParameterCount count_parameters(const std::vector<OutTensor>& tensors);

// The type that a tensor has where nothing is quantised: float32 where all files have that, else the source's float
// type (`wanted` for one that was quantised in a way that GGUF does not have); GGUF's own block types stay.
tensor::DType unquantised_type(const OutTensor& tensor, tensor::DType wanted);

// The tensor's bytes in `type`.
Status produce(const OutTensor& tensor, tensor::DType type, int threads, const format::TensorSink& sink);

}  // namespace adze::convert
