// How a store spells the tensors of a family's rows, and which of its other tensors belong to the model all the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/weight_store.hpp"
#include "model/tensors.hpp"

namespace adze::model {

class TensorNames {
 public:
  // A safetensors model may be the text model of a larger one, whose names then stand in front: found by its embedding.
  TensorNames(const format::WeightStore& store, const std::vector<TensorRow>& rows);

  // Empty where the store's format has no such tensor; with '#' for the number where experts have a tensor each.
  std::string name(const TensorRow& row, int layer) const;
  // The same in the blocks that predict further tokens, behind `layers` layers; and how many of these a folder has.
  std::string predictor_name(const TensorRow& row, int block, int layers) const;
  int predictors() const;
  // Whether name() is the one that MLX has for what it stacked.
  bool is_mlx(const TensorRow& row, int layer) const;
  // Whether a tensor takes part in the pass that Adze computes: over `layers` layers, behind which a GGUF file may have
  // blocks up to `blocks` that predict further tokens. Others (a vision tower, an adapter) belong to parts that Adze
  // does not run.
  bool is_main_pass(std::string_view name, int layers, int blocks) const;

 private:
  std::string in_place(std::string_view name) const;     // behind the prefix of the decoder or the head
  std::string as_stored(const std::string& name) const;  // of all experts, where that is what there is

  const format::WeightStore& store_;
  bool safetensors_;
  std::string_view decoder_ = "model.", head_;  // in front of the decoder's names, and of lm_head
};

}  // namespace adze::model
