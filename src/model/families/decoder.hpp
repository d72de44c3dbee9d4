// The parts that decoder families are put together from, each a step or a few. What a layer has (norms of q and k,
// stacked weights, biases, a window, a rotation) follows from its hyper-parameters and from the tensors that are there,
// never from the model's name.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "model/plan_builder.hpp"
#include "model/tensors.hpp"

namespace adze::model::family {

// Sizes, norms and rope, which every family reads; refuses all other settings but `known` (refuse_other_settings).
Result<Hyperparameters> decoder_config(const ConfigReader& reader, std::span<const std::string_view> known = {},
                                       ops::NormSpec::Kind norm = ops::NormSpec::Kind::rms);

// attention.scale, which GGUF files of Gemma 2 and 3 lack: their scores are divided by the square root of the head
// size, but in the 27B of the family, known by its layers, by that of hidden size / heads. 0: the head size's.
Result<float> gemma_attention_scale(const ConfigReader& reader, const Hyperparameters& p, int layers_of_27b);

// Rows that many families have. Biases of projections are there or not, tensor by tensor.
std::vector<TensorRow> stem_tensors();           // embedding, final norm, output
std::vector<TensorRow> pre_norm_tensors();       // attn_norm, ffn_norm
std::vector<TensorRow> sandwich_tensors();       // these, and the norms behind attention and feed-forward
std::vector<TensorRow> attention_tensors();      // attn_q, attn_k, attn_v, attn_output
std::vector<TensorRow> head_norm_tensors();      // norms over each head of q and k
std::vector<TensorRow> gated_tensors();          // ffn_gate, ffn_up, ffn_down
std::vector<TensorRow> expert_tensors();         // router; experts' gate, up and down, the first two perhaps in one
std::vector<TensorRow> shared_expert_tensors();  // gate, up and down of the shared expert, and its own gate
std::vector<TensorRow> join(std::initializer_list<std::vector<TensorRow>> lists);
// The same rows, where safetensors has norms around zero, and where GGUF has the rows of W_q and W_k permuted.
std::vector<TensorRow> with_norms_around_zero(std::vector<TensorRow> rows);
std::vector<TensorRow> with_permuted_heads(std::vector<TensorRow> rows);

// Writes a plan layer by layer. The residual stream is h; a part reads what the part before it left.
class DecoderWriter {
 public:
  DecoderWriter(const Hyperparameters& parameters, const Weights& weights, PlanBuilder& plan);

  // h = E[token] * embedding_scale
  void embed();
  // Steps from here on belong to this layer.
  void begin_layer(int layer);
  const LayerParameters& layer() const { return p_.layers[static_cast<std::size_t>(layer_)]; }

  // x = norm(h)
  void norm(std::string_view weight);
  // x = h: for layers that normalise what they add, not what they read.
  void copy();
  // attended = attention(x): W_q, W_k, W_v (attn_q, attn_k, attn_v, or stacked as attn_qkv), with biases and norms of q
  // and k where the tensors are there; v is k where W_v is not. A W_q of twice the rows gives each head a gate for what
  // it attends to.
  void attention();
  // delta = Gated DeltaNet(x), see hybrid.hpp: attn_qkv, attn_gate, ssm_beta and ssm_alpha (or ssm_ba, both in one).
  void delta_net();
  // gated = act(W_gate x) * (W_up x), from ffn_gate and ffn_up, or both stacked in ffn_up.
  void feed_forward();
  // h += the mixture of experts of x, with a shared expert where there is one.
  void add_experts();
  // All layers of a decoder that normalises what a part reads (attn_norm, ffn_norm), with its stem and head. The
  // feed-forward part is a mixture of experts where there is a router.
  void pre_norm_decoder(std::string_view feed_forward_norm = "blk.*.ffn_norm.weight");
  // The same for one that also normalises what a part adds (post_attention_norm, post_ffw_norm), as Gemma does.
  void sandwich_decoder();
  // h += W y + b, of what the part before left. `tensor` without ".weight".
  void add_projection(std::string_view tensor);
  // h = (h + post_norm(W y + b)) * scale
  void add_normed_projection(std::string_view tensor, std::string_view post_norm, float scale = 1.0f);
  // Gemma 4's mixture stands beside the feed-forward part. What its router and its experts read, each its own norm of
  // h: before feed_forward(), since neither needs anything of the other.
  void norm_mixture();
  // h = (h + post_ffw_norm(post_1(W_down gated) + post_2(experts))) * scale: behind feed_forward().
  void add_normed_mixture(float scale);
  // Per-layer embeddings, from each token's row of a table and from h; behind embed().
  void layer_inputs();
  // gated = act(W_inp h) * (the layer's part of these)
  void layer_input();
  // logits = W_out norm(h); W_out is the embedding's where there is no other.
  void head();

 private:
  ops::NormSpec norm_spec(std::string_view weight, int layer) const;
  int rope_of(const LayerParameters& layer) const;
  void route(ops::Route how, ops::BufferId in);
  ops::BufferId routes();
  ops::BufferId router_input();
  ops::BufferId experts_input();
  void run_experts(ops::BufferId in, ops::BufferId out, bool add);
  ops::WeightRef weight(std::string_view tensor, std::string_view suffix) const;

  const Hyperparameters& p_;
  const Weights& w_;
  PlanBuilder& plan_;
  int layer_ = -1;
  int main_rope_ = -1, local_rope_ = -1;
  std::vector<int> kv_layers_;        // per layer: what it reads, an index for the plan; -1 in recurrent ones
  ops::BufferId h_, x_, mixed_ = -1;  // mixed_: what the part before left
};

}  // namespace adze::model::family
