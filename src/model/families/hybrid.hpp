// What Qwen3.5, its mixtures of experts and Qwen3-Next share: decoders whose layers mix positions by Gated DeltaNet,
// and every few layers by gated attention. They differ in the feed-forward part and in the order of the delta net's
// rows.
//
//   x       = rms(h; attn_norm)
//   recurrent layers (Yang et al. 2024, arXiv 2412.06464; transformers' qwen3_5 and qwen3_next):
//     u, z    = W_qkv x, W_z x                         b, a = W_beta x, W_alpha x
//     q, k, v = silu(conv(u)), causal over the last K positions, channel by channel; q, k to length 1, q / sqrt(dk)
//     S       = g S;  S += k (beta (v - S^T k))^T;  o = S^T q       g = exp(A softplus(a + dt)), beta = sigmoid(b)
//     h      += W_out (rms(o; ssm_norm) * silu(z))
//   the others:
//     q, t    = W_q x, in heads [q | t];  k, v = W_k x, W_v x;  q, k = rope(rms(q)), rope(rms(k))
//     h      += W_o (softmax(q k^T / sqrt(d)) v * sigmoid(t))
//   x       = rms(h; post_attention_norm)              the norm before the feed-forward part, despite its name
//
// GGUF files have 1 added to the norms (but for ssm_norm) and -exp(A_log) in ssm_a.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "model/families/decoder.hpp"
#include "model/huggingface/import.hpp"

namespace adze::model::family {

// Sizes, norms and rope; which layers are recurrent and their sizes; without the layers that predict further tokens. In
// a layer of one kind the sizes of the other kind are 0. `order` says how the family's files order heads and gates;
// `known` are keys that the family reads itself.
Result<Hyperparameters> hybrid_config(const ConfigReader& reader, ops::DeltaHeads order,
                                      std::span<const std::string_view> known = {});

// All tensors but those of the feed-forward part. `order` as above.
std::vector<TensorRow> hybrid_tensors(const ops::DeltaHeads& order);

// Rows of a config table: linear_value_head_dim (and the order of heads), layer_types or full_attention_interval,
// partial_rotary_factor where it is absent (a quarter).
Status import_delta_heads(ConfigImport& import);
Status import_recurrent_layers(ConfigImport& import);
Status import_default_rotation(ConfigImport& import);

// The rows of a config table that all of them have.
inline constexpr std::array kHybridRows{
    integer_row("linear_conv_kernel_dim", "ssm.conv_kernel", "4"),
    integer_row("linear_num_key_heads", "ssm.group_count", "16"),
    integer_row("linear_num_value_heads", "ssm.time_step_rank", "32"),
    integer_row("linear_key_head_dim", "ssm.state_size", "128"),
    computed_row("linear_value_head_dim", import_delta_heads),
    computed_row("layer_types", import_recurrent_layers),
    ignored_row("full_attention_interval"),
    computed_row("partial_rotary_factor", import_default_rotation),
    only_row("attn_output_gate", "true", "attention without an output gate"),
    only_row("attention_bias", "false", "attention with biases"),
    ignored_row("mtp_num_hidden_layers"),  // the tensors tell
    ignored_row("mtp_use_dedicated_embeddings"),
};

// From h to h and the x of the feed-forward part: the norms and what mixes positions.
void hybrid_mixer(DecoderWriter& decoder);

}  // namespace adze::model::family
