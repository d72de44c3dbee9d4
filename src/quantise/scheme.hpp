// Which type each tensor of a model gets. A mix ("Q4_K_M") is a base type and rules that spend more bits where they buy
// most: the output matrix, attention's values, the ends of the network. Names, rules and file types are llama.cpp's, so
// that a name means the same file everywhere. Pure functions of names, shapes and metadata: nothing here reads weights.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/metadata.hpp"
#include "tensor/view.hpp"

namespace adze::quantise {

enum class MixId : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q6_k,
  q5_k_m,
  q5_k_s,
  q5_1,
  q5_0,
  q4_k_m,
  q4_k_s,
  q4_1,
  q4_0,
  iq4_nl,
  iq4_xs,
  mxfp4_moe,
  q3_k_l,
  q3_k_m,
  q3_k_s,
  q2_k,
  q2_k_s,
};

struct Mix {
  MixId id;
  std::string_view name;
  tensor::DType base;       // of a matrix that no rule is about
  std::uint32_t file_type;  // general.file_type
  std::string_view what;    // one line for people
};

std::span<const Mix> mixes();  // the most exact first
// By name in either case; also Q3_K, Q4_K, Q5_K (their _M mixes) and MXFP4. Errors: invalid_argument, naming all.
Result<const Mix*> find_mix(std::string_view name);
// A weight type by ggml's name in either case ("q6_k"). Errors: invalid_argument, naming all.
Result<tensor::DType> find_weight_type(std::string_view name);

// What the rules read of a model.
struct ModelTraits {
  std::string architecture;
  std::int64_t layers = 0;
  std::int64_t experts = 0;              // 0: none
  std::int64_t query_heads_per_key = 0;  // in the first layer; 0: it has no keys of its own
  // Errors: corrupt_file for a key of the wrong kind. Absent keys count as 0: the rules then choose fewer bits.
  static Result<ModelTraits> from_metadata(const format::Metadata& metadata);
};

// A type for tensors by name: a pattern with '*' (any characters) or '?' (one) is compared with the whole name, another
// one is looked for anywhere in it.
struct TypeOverride {
  std::string pattern;
  tensor::DType type;
};
bool matches(std::string_view pattern, std::string_view name);

struct Scheme {
  const Mix* mix = nullptr;
  bool pure = false;            // the base type for every matrix, no rules
  bool has_importance = false;  // some rules are for quantisers without an importance matrix
  // What comes first counts: token_embedding, output, the first override that matches, then pure or the mix's rules.
  // Only for per_layer_token_embd.weight, far larger than the other table, an override comes before the two.
  std::optional<tensor::DType> token_embedding{};
  std::optional<tensor::DType> output{};  // output.weight; of a model without it, the embeddings
  std::vector<TypeOverride> overrides{};
};

struct TensorEntry {
  std::string_view name;  // as GGUF calls it
  tensor::DType type;
  tensor::Shape shape;
};

// Whether a mix touches this tensor at all: matrices do, but not norms, routers, convolutions and small projections.
bool is_quantised(const TensorEntry& tensor);

struct TypeChoice {
  tensor::DType type;
  bool fell_back = false;  // the type that was meant has blocks longer than the row allows
};
// The type of each of a model's tensors, all of them, in any order. Tensors that a mix does not touch keep theirs.
std::vector<TypeChoice> choose_types(const Scheme& scheme, const ModelTraits& traits,
                                     std::span<const TensorEntry> tensors);

}  // namespace adze::quantise
