// A Plan: what a model computes, as a flat list of steps over named buffers. Written by a family (model/families), read
// by every backend. A plan is immutable once built and may be shared by threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/steps.hpp"

namespace adze::ops {

// float32 [T, width], opaque to the plan; a backend need not store one that lives inside a dispatch.
struct Buffer {
  std::string name;
  int width = 0;
};

// What one attention layer keeps per position: k and v, kv_heads * head_size values each.
struct KvLayer {
  int kv_heads = 0;
  int head_size = 0;
  int window = 0;  // 0: every position; else only the last `window` are ever read again
};

// What one recurrent layer keeps per sequence, float32, however long it grows: the last kernel - 1 inputs of its
// convolution, each `channels` wide, and S [value_heads, key_size, value_size]. It cannot be rolled back.
struct StateLayer {
  int channels = 0;
  int kernel = 0;
  int value_heads = 0;
  int key_size = 0;
  int value_size = 0;
};

struct Plan {
  std::string family;
  int hidden_size = 0;
  int vocabulary_size = 0;
  int context_length = 0;  // the largest position + 1 that the rope tables were made for
  std::vector<Buffer> buffers;
  std::vector<RopeSpec> ropes;
  std::vector<KvLayer> kv_layers;
  std::vector<StateLayer> state_layers;
  std::vector<Step> steps;
  std::vector<int> step_layers;                                  // per step: its layer, -1 for embedding and head
  std::vector<std::shared_ptr<const tensor::TensorView>> parts;  // of weights that a file stores stacked
};

}  // namespace adze::ops
