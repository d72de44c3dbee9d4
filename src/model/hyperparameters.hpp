// What a model's metadata says about its layers, in neutral words: one type for all families. Every number is checked
// against base/limits.hpp when it is read, and an error names the metadata key, the value found and what is allowed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/metadata.hpp"
#include "format/weight_store.hpp"
#include "model/rope.hpp"
#include "ops/steps.hpp"

namespace adze::model {

// Layers of one model may differ in all of these.
struct LayerParameters {
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  int feed_forward = 0;
  int window = 0;  // sliding attention over the last `window` positions; 0: all
  enum class Rope : std::uint8_t { main, local, none } rope = Rope::main;
  int kv_source = -1;  // the layer whose keys and values this one reads; -1: its own
  // Whether there is a W_v, or k serves as v; `either`: the tensors tell.
  enum class Values : std::uint8_t { own, keys, either } values = Values::own;
  // A recurrent layer has these in place of heads, which are 0 there.
  ops::DeltaHeads delta{};
  int convolution = 0;  // positions that its convolution spans
};

// A mixture of experts in place of a layer's feed-forward part, see ops::Route.
struct MixtureParameters {
  int experts = 0;       // 0: none
  int used = 0;          // by each token
  int width = 0;         // of an expert's network
  int shared_width = 0;  // of the shared expert's network; 0: none
  ops::Route::Scoring scoring = ops::Route::Scoring::softmax;
  bool renormalise = true;
  float scale = 1.0f;  // of the experts' weights
};

struct Hyperparameters {
  std::string architecture;  // general.architecture
  int vocabulary_size = 0;
  int hidden_size = 0;
  std::int64_t context_length = 0;                      // positions that the model was trained for
  ops::NormSpec::Kind norm = ops::NormSpec::Kind::rms;  // of every norm but those of heads
  float norm_epsilon = 0.0f;
  float attention_scale = 0.0f;    // 0: 1 / sqrt(head_size)
  float attention_softcap = 0.0f;  // tanh(score / cap) * cap; 0: none
  bool value_norm = false;         // v is normalised, per head and without a weight
  float position_scale = 0.0f;     // of q, see ops::AttentionPrep; 0: none
  int position_interval = 1;
  float logit_scale = 1.0f;
  float final_softcap = 0.0f;  // as of attention, on scaled logits
  float embedding_scale = 1.0f;
  int layer_input_size = 0;          // per-layer embeddings of this size for each layer (Gemma 4); 0: none
  bool attention_biases = false;     // W_q, W_k, W_v and W_o must have one
  bool feed_forward_biases = false;  // W_gate, W_up and W_down must
  bool tied_output = true;           // the embedding is the output matrix where the model has no other
  ops::Activation activation = ops::Activation::silu;
  RopeSettings rope;
  MixtureParameters mixture{};
  RopeSettings local_rope;  // of the layers that say so
  std::vector<LayerParameters> layers;
  // Blocks behind them that predict further tokens (multi-token prediction) and are no part of the main pass: how many
  // a GGUF file says there are, and what each is like, without heads where the family has none.
  int predictors = 0;
  LayerParameters predictor{};

  int layer_count() const { return static_cast<int>(layers.size()); }
};

// Keys that only the import of a folder writes, for what config.json says and GGUF has no key for (there a tensor says
// it, or the converter has changed the weights). They count for nothing in a GGUF file.
inline constexpr std::string_view kFolderKeys = "folder.";  // how they begin, behind "<architecture>."
namespace folder_key {
inline constexpr std::string_view kAttentionBias = "folder.attention_bias";           // q, k, v and o have biases
inline constexpr std::string_view kFeedForwardBias = "folder.feed_forward_bias";      // gate, up and down have
inline constexpr std::string_view kGroupedValueHeads = "folder.grouped_value_heads";  // side by side, not tiled
inline constexpr std::string_view kKeysAsValues = "folder.keys_as_values";            // full layers have no W_v
inline constexpr std::string_view kSlidingLayers = "folder.sliding_layers";           // which ones slide
inline constexpr std::string_view kTurnedPairs = "folder.turned_pairs";               // of each head, by the rope
inline constexpr std::string_view kRoundRamp = "folder.round_ramp";                   // YaRN, RopeSettings::round_ramp
inline constexpr std::string_view kShortFactors = "folder.rope_factors_short";        // RopeSettings::short_factors
inline constexpr std::string_view kLongFactors = "folder.rope_factors_long";          // RopeSettings::long_factors
}  // namespace folder_key

// Reads the keys of one architecture: `key` is without the "<architecture>." that GGUF puts before it. Errors:
// corrupt_file, for a key that is missing, of another kind, or out of range.
class ConfigReader {
 public:
  ConfigReader(const format::Metadata& metadata, std::string_view architecture, format::StoreFormat format)
      : metadata_(metadata), architecture_(architecture), format_(format) {}

  std::string full(std::string_view key) const;  // "llama.block_count"
  bool has(std::string_view key) const {
    const bool counts = format_ == format::StoreFormat::safetensors || !key.starts_with(kFolderKeys);
    return counts && metadata_.has(full(key));
  }
  const format::Metadata& metadata() const { return metadata_; }

  struct Range {
    std::int64_t min, max;
  };
  Result<std::int64_t> integer(std::string_view key, Range allowed) const;
  Result<std::int64_t> integer_or(std::string_view key, std::int64_t fallback, Range allowed) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;
  // One value for all layers, or an array of one per layer.
  Result<std::vector<std::int64_t>> per_layer(std::string_view key, std::size_t layers, Range allowed) const;
  // An array of one boolean per layer.
  Result<std::vector<bool>> flags_per_layer(std::string_view key, std::size_t layers) const;

  struct FloatRange {
    double above, max;  // above < value <= max
  };
  Result<float> number(std::string_view key, FloatRange allowed) const;
  Result<float> number_or(std::string_view key, float fallback, FloatRange allowed) const;

  // Refuses a setting by name (unsupported_feature) unless the key is absent or says `neutral`, which is what the
  // family computes anyway. Numbers and booleans (0 and 1) alike.
  Status refuse_unless(std::string_view key, double neutral, std::string_view what) const;

 private:
  Status require(std::string_view key) const;

  const format::Metadata& metadata_;
  std::string architecture_;
  format::StoreFormat format_;
};

// The groups of keys that families share.

// block_count, embedding_length, context_length, vocab_size, attention.head_count, attention.head_count_kv,
// attention.key_length, attention.value_length, feed_forward_length: sizes of the whole and of each layer.
// feed_forward_length may be missing (0) where every layer is a mixture of experts.
Result<Hyperparameters> read_sizes(const ConfigReader& reader);
// expert_count, expert_used_count, expert_feed_forward_length, expert_shared_feed_forward_length, expert_weights_scale.
// Refuses experts in some layers only, groups of experts, and scores other than softmax ones that are renormalised.
Result<MixtureParameters> read_mixture(const ConfigReader& reader);
// Settings that some family of decoders has and that change what is computed. A family passes the keys that it reads
// itself; all others must be absent or neutral, and are refused by name where they are not.
Status refuse_other_settings(const ConfigReader& reader, std::span<const std::string_view> known = {});
// rope.dimension_count, rope.freq_base, rope.scaling.*. Refuses scalings that Adze does not have.
Result<RopeSettings> read_rope(const ConfigReader& reader, const Hyperparameters& parameters);

}  // namespace adze::model
