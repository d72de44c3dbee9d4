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
#include <cmath>

#include "base/limits.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

Result<Hyperparameters> config(const ConfigReader& reader) {
  ADZE_TRY_STATUS(reader.refuse_unless("expert_count", 0, "a mixture of experts"));
  ADZE_TRY(Hyperparameters p, read_sizes(reader));
  ADZE_TRY(p.norm_epsilon, reader.number("attention.layer_norm_rms_epsilon", {0.0, 1.0}));
  ADZE_TRY(p.rope, read_rope(reader, p));
  p.rope.interleaved = true;
  ADZE_TRY(p.attention_scale, reader.number_or("attention.scale", 0.0f, {0.0, 1e4}));
  ADZE_TRY(const std::int64_t window, reader.integer_or("attention.sliding_window", 0, {0, limits::kMaxContext}));
  for (LayerParameters& layer : p.layers) layer.window = static_cast<int>(window);

  struct Refused {
    std::string_view key;
    double neutral;
    std::string_view what;
  };
  constexpr std::array kRefused{
      Refused{"attention.sliding_window_pattern", 1, "sliding attention in some layers only"},
      Refused{"attention.causal", 1, "attention to later positions"},
      Refused{"attention.clamp_kqv", 0, "clamped queries, keys and values"},
      Refused{"attention.max_alibi_bias", 0, "ALiBi position biases"},
      Refused{"attention.temperature_scale", 0, "queries scaled by position"},
      Refused{"attention.q_lora_rank", 0, "low-rank queries"},
      Refused{"attention.kv_lora_rank", 0, "a low-rank KV cache"},
      Refused{"attention.shared_kv_layers", 0, "layers that share keys and values"},
      Refused{"attn_logit_softcapping", 0, "soft-capped attention scores"},
      Refused{"final_logit_softcapping", 0, "soft-capped logits"},
      Refused{"use_parallel_residual", 0, "attention and feed-forward in parallel"},
      Refused{"embedding_scale", 1, "scaled embeddings"},
      Refused{"residual_scale", 1, "scaled residuals"},
      Refused{"logit_scale", 1, "scaled logits"},
      Refused{"nextn_predict_layers", 0, "layers that predict further tokens"},
      Refused{"pooling_type", 0, "a pooled embedding in place of logits"},
  };
  for (const Refused& setting : kRefused) {
    ADZE_TRY_STATUS(reader.refuse_unless(setting.key, setting.neutral, setting.what));
  }
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
      {"output.weight", "lm_head.weight", vocabulary, hidden, optional},
      {"rope_freqs.weight", "", Dim::none, rope_pairs, optional},
      {"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", Dim::none, hidden},
      {"blk.*.attn_q.weight", "model.layers.*.self_attn.q_proj.weight", query, hidden, required, interleave_query},
      {"blk.*.attn_q.bias", "model.layers.*.self_attn.q_proj.bias", Dim::none, query, optional, interleave_query},
      {"blk.*.attn_k.weight", "model.layers.*.self_attn.k_proj.weight", key_value, hidden, required, interleave_key},
      {"blk.*.attn_k.bias", "model.layers.*.self_attn.k_proj.bias", Dim::none, key_value, optional, interleave_key},
      {"blk.*.attn_v.weight", "model.layers.*.self_attn.v_proj.weight", key_value, hidden},
      {"blk.*.attn_v.bias", "model.layers.*.self_attn.v_proj.bias", Dim::none, key_value, optional},
      {"blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight", hidden, query},
      {"blk.*.attn_output.bias", "model.layers.*.self_attn.o_proj.bias", Dim::none, hidden, optional},
      {"blk.*.ffn_norm.weight", "model.layers.*.post_attention_layernorm.weight", Dim::none, hidden},
      {"blk.*.ffn_gate.weight", "model.layers.*.mlp.gate_proj.weight", feed_forward, hidden},
      {"blk.*.ffn_gate.bias", "model.layers.*.mlp.gate_proj.bias", Dim::none, feed_forward, optional},
      {"blk.*.ffn_up.weight", "model.layers.*.mlp.up_proj.weight", feed_forward, hidden},
      {"blk.*.ffn_up.bias", "model.layers.*.mlp.up_proj.bias", Dim::none, feed_forward, optional},
      {"blk.*.ffn_down.weight", "model.layers.*.mlp.down_proj.weight", hidden, feed_forward},
      {"blk.*.ffn_down.bias", "model.layers.*.mlp.down_proj.bias", Dim::none, hidden, optional},
  };
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  const auto norm = [&](ops::WeightRef weight) { return ops::NormSpec{.weight = weight, .epsilon = p.norm_epsilon}; };
  const int rope = plan.rope(make_rope(p.rope, w.values("rope_freqs.weight")));
  const ops::BufferId h = plan.buffer("h", p.hidden_size), x = plan.buffer("x", p.hidden_size);

  plan.add(ops::Embed{.table = w.get("token_embd.weight"), .out = h});
  for (int i = 0; i < p.layer_count(); ++i) {
    const LayerParameters& l = p.layers[static_cast<std::size_t>(i)];
    const int query = l.heads * l.head_size, key_value = l.kv_heads * l.head_size;
    const ops::BufferId qkv = plan.buffer("qkv", query + 2 * key_value), q = plan.buffer("q", query);
    const ops::BufferId attended = plan.buffer("attended", query), gated = plan.buffer("gated", l.feed_forward);
    const int kv = plan.kv_layer({l.kv_heads, l.head_size, l.window});
    const float scale = p.attention_scale > 0 ? p.attention_scale : 1.0f / std::sqrt(static_cast<float>(l.head_size));
    // After the last layer's keys and values are stored, only rows whose logits are wanted go on.
    const ops::RowSet rows = i + 1 < p.layer_count() ? ops::RowSet::all : ops::RowSet::needed;

    plan.layer(i);
    plan.add(ops::Norm{.norm = norm(w.get("blk.*.attn_norm.weight", i)), .in = h, .out = x});
    plan.add(ops::Project{.parts = {{w.get("blk.*.attn_q.weight", i), w.get("blk.*.attn_q.bias", i)},
                                    {w.get("blk.*.attn_k.weight", i), w.get("blk.*.attn_k.bias", i)},
                                    {w.get("blk.*.attn_v.weight", i), w.get("blk.*.attn_v.bias", i)}},
                          .in = x,
                          .out = qkv});
    plan.add(ops::AttentionPrep{.kv_layer = kv,
                                .heads = l.heads,
                                .kv_heads = l.kv_heads,
                                .head_size = l.head_size,
                                .rope = rope,
                                .in = qkv,
                                .out = q});
    plan.add(ops::Attend{.kv_layer = kv,
                         .heads = l.heads,
                         .kv_heads = l.kv_heads,
                         .head_size = l.head_size,
                         .scale = scale,
                         .window = l.window,
                         .in = q,
                         .out = attended,
                         .rows = rows});
    plan.add(ops::ProjectAdd{.weight = w.get("blk.*.attn_output.weight", i),
                             .bias = w.get("blk.*.attn_output.bias", i),
                             .in = attended,
                             .out = h,
                             .rows = rows});
    plan.add(ops::Norm{.norm = norm(w.get("blk.*.ffn_norm.weight", i)), .in = h, .out = x, .rows = rows});
    plan.add(ops::GatedPair{.gate = w.get("blk.*.ffn_gate.weight", i),
                            .up = w.get("blk.*.ffn_up.weight", i),
                            .gate_bias = w.get("blk.*.ffn_gate.bias", i),
                            .up_bias = w.get("blk.*.ffn_up.bias", i),
                            .in = x,
                            .out = gated,
                            .rows = rows});
    plan.add(ops::ProjectAdd{.weight = w.get("blk.*.ffn_down.weight", i),
                             .bias = w.get("blk.*.ffn_down.bias", i),
                             .in = gated,
                             .out = h,
                             .rows = rows});
  }
  plan.layer(-1);
  const ops::WeightRef output = w.get("output.weight");
  plan.add(ops::Head{.norm = norm(w.get("output_norm.weight")),
                     .weight = output != nullptr ? output : w.get("token_embd.weight"),
                     .in = h});
}

constexpr std::array<std::string_view, 1> kArchitectures{"llama"};

}  // namespace

extern const Family kLlama;
const Family kLlama{.name = "llama",
                    .architectures = kArchitectures,
                    .summary = "Llama 1 to 3, Mistral 7B, SmolLM and other decoders of the same shape",
                    .config = config,
                    .tensors = tensors,
                    .forward = forward};

}  // namespace adze::model::family
