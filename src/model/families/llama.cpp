// Llama: the decoder that most open models descend from (Llama 1 to 3, Mistral 7B, SmolLM, TinyLlama, Yi ...).
// Touvron et al. 2023, arXiv 2302.13971; grouped heads: Ainslie et al. 2023, arXiv 2305.13245.
//
//   h_0     = E[token]
//   x       = rms(h; attn_norm)
//   q, k, v = W_q x + b_q, W_k x + b_k, W_v x + b_v          in heads of size d; kv_heads <= heads
//   q, k    = rope(q, position), rope(k, position)           pairs (2i, 2i+1): GGUF stores W_q and W_k permuted for it
//   h      += W_o softmax(q k^T / sqrt(d)) v + b_o           causal, each group of query heads shares one kv head
//   x       = rms(h; ffn_norm)
//   h      += W_down (silu(W_gate x + b_gate) * (W_up x + b_up)) + b_down
//   logits  = W_out rms(h; output_norm)                      W_out = E when the file has no output.weight (tied)
//
// Biases are there or not, tensor by tensor; rope_freqs.weight divides the rope frequencies (Llama 3's long context).
#include <array>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown));
  p.rope.interleaved = true;
  ADZE_TRY(p.attention_scale, reader.number_or("attention.scale", 0.0f, {0.0, 1e4}));
  ADZE_TRY(const std::int64_t window, reader.integer_or("attention.sliding_window", 0, {0, limits::kMaxContext}));
  for (LayerParameters& layer : p.layers) layer.window = static_cast<int>(window);
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  using enum Need;
  using enum Transform;
  constexpr Dim vocabulary = Dim::vocabulary, hidden = Dim::hidden, feed_forward = Dim::feed_forward;
  constexpr Dim query = Dim::query, key_value = Dim::key_value, rope_pairs = Dim::rope_pairs;
  return {
      {"token_embd.weight", "model.embed_tokens.weight", vocabulary, hidden},
      {"output_norm.weight", "model.norm.weight", Dim::none, hidden},
      {"output.weight", "lm_head.weight", vocabulary, hidden, unless_tied},
      {"rope_freqs.weight", "", Dim::none, rope_pairs, optional},
      {"rope_factors_short.weight", "", Dim::none, rope_pairs, optional},
      {"rope_factors_long.weight", "", Dim::none, rope_pairs, optional},
      {"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", Dim::none, hidden},
      {"blk.*.attn_q.weight", "model.layers.*.self_attn.q_proj.weight", query, hidden, required, interleave_query},
      {"blk.*.attn_q.bias", "model.layers.*.self_attn.q_proj.bias", Dim::none, query, if_attention_biased,
       interleave_query},
      {"blk.*.attn_k.weight", "model.layers.*.self_attn.k_proj.weight", key_value, hidden, required, interleave_key},
      {"blk.*.attn_k.bias", "model.layers.*.self_attn.k_proj.bias", Dim::none, key_value, if_attention_biased,
       interleave_key},
      {"blk.*.attn_v.weight", "model.layers.*.self_attn.v_proj.weight", key_value, hidden},
      {"blk.*.attn_v.bias", "model.layers.*.self_attn.v_proj.bias", Dim::none, key_value, if_attention_biased},
      {"blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight", hidden, query},
      {"blk.*.attn_output.bias", "model.layers.*.self_attn.o_proj.bias", Dim::none, hidden, if_attention_biased},
      {"blk.*.ffn_norm.weight", "model.layers.*.post_attention_layernorm.weight", Dim::none, hidden},
      {"blk.*.ffn_gate.weight", "model.layers.*.mlp.gate_proj.weight", feed_forward, hidden},
      {"blk.*.ffn_gate.bias", "model.layers.*.mlp.gate_proj.bias", Dim::none, feed_forward, if_feed_forward_biased},
      {"blk.*.ffn_up.weight", "model.layers.*.mlp.up_proj.weight", feed_forward, hidden},
      {"blk.*.ffn_up.bias", "model.layers.*.mlp.up_proj.bias", Dim::none, feed_forward, if_feed_forward_biased},
      {"blk.*.ffn_down.weight", "model.layers.*.mlp.down_proj.weight", hidden, feed_forward},
      {"blk.*.ffn_down.bias", "model.layers.*.mlp.down_proj.bias", Dim::none, hidden, if_feed_forward_biased},
  };
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter(p, w, plan).pre_norm_decoder();
}

constexpr std::array<std::string_view, 1> kArchitectures{"llama"};

// Mistral's window holds for all layers; the GGUF of such a model does not tell of it.
constexpr std::array<std::string_view, 1> kLlamaTypes{"llama"}, kMistralTypes{"mistral"};
constexpr std::array kMistralRows{integer_row("sliding_window", "attention.sliding_window", "4096"),
                                  integer_row("num_key_value_heads", "attention.head_count_kv", "8"),
                                  ignored_row("attention_bias")};  // Mistral's code has none
constexpr std::array kLlamaRows{boolean_row("mlp_bias", folder_key::kFeedForwardBias, "false")};
constexpr std::array kImports{
    FamilyImport{.model_types = kLlamaTypes, .architecture = "llama", .rows = kLlamaRows},
    FamilyImport{.model_types = kMistralTypes, .architecture = "llama", .rows = kMistralRows},
};

}  // namespace

extern const Family kLlama;
const Family kLlama{.name = "llama",
                    .architectures = kArchitectures,
                    .summary = "Llama 1 to 3, Mistral 7B, SmolLM and other decoders of the same shape",
                    .config = config,
                    .tensors = tensors,
                    .forward = forward,
                    .imports = kImports};

}  // namespace adze::model::family
