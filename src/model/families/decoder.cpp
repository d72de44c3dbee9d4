#include "model/families/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace adze::model::family {

Result<Hyperparameters> decoder_config(const ConfigReader& reader, std::span<const std::string_view> known,
                                       ops::NormSpec::Kind norm) {
  const bool rms = norm == ops::NormSpec::Kind::rms;
  ADZE_TRY_STATUS(refuse_other_settings(reader, known));
  ADZE_TRY(Hyperparameters p, read_sizes(reader));
  p.norm = norm;
  ADZE_TRY(p.norm_epsilon,
           reader.number(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", {0.0, 1.0}));
  ADZE_TRY(p.rope, read_rope(reader, p));
  ADZE_TRY(p.attention_biases, reader.flag_or(folder_key::kAttentionBias, false));
  ADZE_TRY(p.feed_forward_biases, reader.flag_or(folder_key::kFeedForwardBias, false));
  return p;
}

Result<float> gemma_attention_scale(const ConfigReader& reader, const Hyperparameters& p, int layers_of_27b) {
  const auto each = static_cast<float>(p.hidden_size) / static_cast<float>(p.layers.front().heads);
  return reader.number_or("attention.scale", p.layer_count() == layers_of_27b ? 1.0f / std::sqrt(each) : 0.0f,
                          {0.0, 1e4});
}

std::vector<TensorRow> stem_tensors() {
  return {
      {"token_embd.weight", "model.embed_tokens.weight", Dim::vocabulary, Dim::hidden},
      {"output_norm.weight", "model.norm.weight", Dim::none, Dim::hidden},
      {"output.weight", "lm_head.weight", Dim::vocabulary, Dim::hidden, Need::unless_tied},
      {"rope_freqs.weight", "", Dim::none, Dim::rope_pairs, Need::optional},
      {"rope_factors_short.weight", "", Dim::none, Dim::rope_pairs, Need::optional},
      {"rope_factors_long.weight", "", Dim::none, Dim::rope_pairs, Need::optional},
  };
}

std::vector<TensorRow> pre_norm_tensors() {
  return {
      {"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", Dim::none, Dim::hidden},
      {"blk.*.ffn_norm.weight", "model.layers.*.post_attention_layernorm.weight", Dim::none, Dim::hidden},
  };
}

std::vector<TensorRow> sandwich_tensors() {
  constexpr Dim none = Dim::none, hidden = Dim::hidden;
  return {
      {"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", none, hidden},
      {"blk.*.post_attention_norm.weight", "model.layers.*.post_attention_layernorm.weight", none, hidden},
      {"blk.*.ffn_norm.weight", "model.layers.*.pre_feedforward_layernorm.weight", none, hidden},
      {"blk.*.post_ffw_norm.weight", "model.layers.*.post_feedforward_layernorm.weight", none, hidden},
  };
}

std::vector<TensorRow> head_norm_tensors() {
  return {
      {"blk.*.attn_q_norm.weight", "model.layers.*.self_attn.q_norm.weight", Dim::none, Dim::head},
      {"blk.*.attn_k_norm.weight", "model.layers.*.self_attn.k_norm.weight", Dim::none, Dim::head},
  };
}

std::vector<TensorRow> attention_tensors() {
  using enum Need;
  constexpr Dim hidden = Dim::hidden, query = Dim::query, key_value = Dim::key_value;
  return {
      {"blk.*.attn_q.weight", "model.layers.*.self_attn.q_proj.weight", query, hidden},
      {"blk.*.attn_q.bias", "model.layers.*.self_attn.q_proj.bias", Dim::none, query, if_attention_biased},
      {"blk.*.attn_k.weight", "model.layers.*.self_attn.k_proj.weight", key_value, hidden},
      {"blk.*.attn_k.bias", "model.layers.*.self_attn.k_proj.bias", Dim::none, key_value, if_attention_biased},
      {"blk.*.attn_v.weight", "model.layers.*.self_attn.v_proj.weight", key_value, hidden},
      {"blk.*.attn_v.bias", "model.layers.*.self_attn.v_proj.bias", Dim::none, key_value, if_attention_biased},
      {"blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight", hidden, query},
      {"blk.*.attn_output.bias", "model.layers.*.self_attn.o_proj.bias", Dim::none, hidden, if_attention_biased},
  };
}

std::vector<TensorRow> gated_tensors() {
  constexpr Dim hidden = Dim::hidden, feed_forward = Dim::feed_forward;
  return {
      {"blk.*.ffn_gate.weight", "model.layers.*.mlp.gate_proj.weight", feed_forward, hidden},
      {"blk.*.ffn_up.weight", "model.layers.*.mlp.up_proj.weight", feed_forward, hidden},
      {"blk.*.ffn_down.weight", "model.layers.*.mlp.down_proj.weight", hidden, feed_forward},
  };
}

std::vector<TensorRow> expert_tensors() {
  using enum Need;
  constexpr Dim hidden = Dim::hidden, experts = Dim::experts, width = Dim::expert_width;
  constexpr Transform as_is = Transform::none;
  return {
      {"blk.*.ffn_gate_inp.weight", "model.layers.*.mlp.gate.weight", experts, hidden},
      // The first of these before the two that it may stand for.
      {"blk.*.ffn_gate_up_exps.weight", "model.layers.*.mlp.experts.gate_up_proj", Dim::fused_expert_width, hidden,
       optional, as_is, experts},
      {"blk.*.ffn_gate_exps.weight", "model.layers.*.mlp.experts.#.gate_proj.weight", width, hidden, unless_fused,
       as_is, experts, "model.layers.*.mlp.switch_mlp.gate_proj.weight"},
      {"blk.*.ffn_up_exps.weight", "model.layers.*.mlp.experts.#.up_proj.weight", width, hidden, unless_fused, as_is,
       experts, "model.layers.*.mlp.switch_mlp.up_proj.weight"},
      {"blk.*.ffn_down_exps.weight", "model.layers.*.mlp.experts.#.down_proj.weight", hidden, width, required, as_is,
       experts, "model.layers.*.mlp.switch_mlp.down_proj.weight"},
  };
}

std::vector<TensorRow> shared_expert_tensors() {
  constexpr Dim hidden = Dim::hidden, width = Dim::shared_expert_width;
  return {
      {"blk.*.ffn_gate_inp_shexp.weight", "model.layers.*.mlp.shared_expert_gate.weight", Dim::one, hidden},
      {"blk.*.ffn_gate_shexp.weight", "model.layers.*.mlp.shared_expert.gate_proj.weight", width, hidden},
      {"blk.*.ffn_up_shexp.weight", "model.layers.*.mlp.shared_expert.up_proj.weight", width, hidden},
      {"blk.*.ffn_down_shexp.weight", "model.layers.*.mlp.shared_expert.down_proj.weight", hidden, width},
  };
}

std::vector<TensorRow> with_norms_around_zero(std::vector<TensorRow> rows) {
  for (TensorRow& row : rows) {
    if (row.gguf.ends_with("norm.weight")) row.transform = Transform::one_plus;
  }
  return rows;
}

std::vector<TensorRow> with_permuted_heads(std::vector<TensorRow> rows) {
  for (TensorRow& row : rows) {
    if (row.gguf.starts_with("blk.*.attn_q.")) row.transform = Transform::interleave_query;
    if (row.gguf.starts_with("blk.*.attn_k.")) row.transform = Transform::interleave_key;
  }
  return rows;
}

std::vector<TensorRow> join(std::initializer_list<std::vector<TensorRow>> lists) {
  std::vector<TensorRow> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

DecoderWriter::DecoderWriter(const Hyperparameters& parameters, const Weights& weights, PlanBuilder& plan)
    : p_(parameters),
      w_(weights),
      plan_(plan),
      h_(plan.buffer("h", parameters.hidden_size)),
      x_(plan.buffer("x", parameters.hidden_size)) {
  using enum LayerParameters::Rope;
  const auto uses = [&](LayerParameters::Rope rope) {
    return std::ranges::count(p_.layers, rope, &LayerParameters::rope);
  };
  if (uses(main) > 0) main_rope_ = plan_.rope(make_rope(p_.rope, w_.values("rope_freqs.weight")));
  if (uses(local) > 0) local_rope_ = plan_.rope(make_rope(p_.local_rope));
}

ops::NormSpec DecoderWriter::norm_spec(std::string_view weight, int layer) const {
  return {.kind = p_.norm, .weight = w_.get(weight, layer), .epsilon = p_.norm_epsilon};
}

int DecoderWriter::rope_of(const LayerParameters& layer) const {
  switch (layer.rope) {
    case LayerParameters::Rope::main: return main_rope_;
    case LayerParameters::Rope::local: return local_rope_;
    case LayerParameters::Rope::none: return -1;
  }
  return -1;
}

ops::WeightRef DecoderWriter::weight(std::string_view tensor, std::string_view suffix) const {
  return w_.find(fmt::format("{}.{}", tensor, suffix), layer_);
}

void DecoderWriter::embed() {
  plan_.add(ops::Embed{.table = w_.get("token_embd.weight"), .scale = p_.embedding_scale, .out = h_});
}

void DecoderWriter::begin_layer(int layer) {
  layer_ = layer;
  plan_.layer(layer);
}

void DecoderWriter::norm(std::string_view weight) {
  plan_.add(ops::Norm{.norm = norm_spec(weight, layer_), .in = h_, .out = x_});
}

void DecoderWriter::copy() { plan_.add(ops::Norm{.norm = {.kind = ops::NormSpec::Kind::none}, .in = h_, .out = x_}); }

void DecoderWriter::attention() {
  using Stored = ops::AttentionPrep::Stored;
  const LayerParameters& l = layer();
  const bool shares = l.kv_source >= 0;
  if (!shares) kv_layers_.push_back(plan_.kv_layer({l.kv_heads, l.head_size, l.window}));
  if (shares) kv_layers_.push_back(kv_layers_[static_cast<std::size_t>(l.kv_source)]);

  ops::Project project{.parts = {}, .in = x_};
  const ops::WeightRef stacked = weight("blk.*.attn_qkv", "weight"), value = weight("blk.*.attn_v", "weight");
  const Stored stored = shares                                   ? Stored::nothing
                        : stacked == nullptr && value == nullptr ? Stored::key_as_value
                                                                 : Stored::key_and_value;
  if (stacked != nullptr) {
    project.parts.push_back({stacked, weight("blk.*.attn_qkv", "bias")});
  } else {
    const std::string_view parts[] = {"blk.*.attn_q", "blk.*.attn_k", "blk.*.attn_v"};
    const std::size_t count = shares ? 1 : stored == Stored::key_as_value ? 2 : 3;
    for (const std::string_view part : std::span(parts).first(count)) {
      project.parts.push_back({weight(part, "weight"), weight(part, "bias")});
    }
  }
  const ops::WeightRef q_norm = weight("blk.*.attn_q_norm", "weight"), k_norm = weight("blk.*.attn_k_norm", "weight");
  ops::AttentionPrep prep{.kv_layer = kv_layers_.back(),
                          .heads = l.heads,
                          .kv_heads = l.kv_heads,
                          .head_size = l.head_size,
                          .has_q_norm = q_norm != nullptr,
                          .has_k_norm = k_norm != nullptr,
                          .norm_all_heads = q_norm != nullptr && q_norm->columns() != l.head_size,
                          .has_v_norm = p_.value_norm,
                          .stored = stored,
                          .q_norm = {.weight = q_norm, .epsilon = p_.norm_epsilon},
                          .k_norm = {.weight = k_norm, .epsilon = p_.norm_epsilon},
                          .v_norm = {.epsilon = p_.norm_epsilon},
                          .position_scale = p_.position_scale,
                          .position_interval = p_.position_interval,
                          .rope = rope_of(l)};
  const int query = l.heads * l.head_size;
  const bool gated = stacked == nullptr && project.parts.front().weight->rows() == 2 * std::int64_t{query};
  const int queries = gated ? 2 * query : query;
  prep.in = project.out = plan_.buffer("qkv", queries + prep.stored_parts() * l.kv_heads * l.head_size);
  prep.out = plan_.buffer("q", query);
  if (gated) prep.gate = plan_.buffer("gate", query);
  mixed_ = plan_.buffer("attended", query);
  plan_.add(std::move(project));
  plan_.add(prep);
  plan_.add(ops::Attend{
      .kv_layer = prep.kv_layer,
      .heads = l.heads,
      .kv_heads = l.kv_heads,
      .head_size = l.head_size,
      .scale = p_.attention_scale > 0 ? p_.attention_scale : 1.0f / std::sqrt(static_cast<float>(l.head_size)),
      .softcap = p_.attention_softcap,
      .window = l.window,
      .sinks = weight("blk.*.attn_sinks", "weight"),
      .in = prep.out,
      .out = mixed_,
      .gate = prep.gate});
}

void DecoderWriter::layer_inputs() {
  const int width = p_.layer_input_size, all = width * p_.layer_count();
  const ops::BufferId inputs = plan_.buffer("layer_inputs", all), context = plan_.buffer("context", all);
  plan_.add(ops::Embed{
      .table = w_.get("per_layer_token_embd.weight"), .scale = std::sqrt(static_cast<float>(width)), .out = inputs});
  copy();
  plan_.add(ops::Project{.parts = {{w_.get("per_layer_model_proj.weight"), nullptr}}, .in = x_, .out = context});
  // rms(c x; eps) = rms(x; eps / c^2), with c = 1 / sqrt(hidden).
  ops::NormSpec norm = norm_spec("per_layer_proj_norm.weight", -1);
  norm.epsilon *= static_cast<float>(p_.hidden_size);
  plan_.add(ops::ResidualNorm{.residual = inputs,
                              .addends = {{.in = context, .has_norm = true, .norm = norm}},
                              .scale = std::sqrt(0.5f),
                              .norm = {}});
}

void DecoderWriter::layer_input() {
  copy();
  mixed_ = plan_.buffer("gated", p_.layer_input_size);
  plan_.add(ops::GatedPair{.gate = weight("blk.*.inp_gate", "weight"),
                           .activation = p_.activation,
                           .in = x_,
                           .out = mixed_,
                           .side = plan_.buffer("layer_inputs", p_.layer_input_size * p_.layer_count()),
                           .side_first = layer_ * p_.layer_input_size});
}

void DecoderWriter::delta_net() {
  const ops::DeltaHeads& d = layer().delta;
  kv_layers_.push_back(-1);
  const int width = d.value_heads * d.value_size;
  const ops::BufferId projected = plan_.buffer("projected", d.projected());
  const ops::BufferId prepared = plan_.buffer("prepared", d.prepared()), scanned = plan_.buffer("scanned", width);
  mixed_ = plan_.buffer("delta", width);
  const int state = plan_.state_layer({d.channels(), layer().convolution, d.value_heads, d.key_size, d.value_size});

  ops::Project project{.parts = {{weight("blk.*.attn_qkv", "weight")}, {weight("blk.*.attn_gate", "weight")}},
                       .in = x_,
                       .out = projected};
  if (d.gates_by_key_head) {
    project.parts.push_back({weight("blk.*.ssm_ba", "weight")});
  } else {
    project.parts.push_back({weight("blk.*.ssm_beta", "weight")});
    project.parts.push_back({weight("blk.*.ssm_alpha", "weight")});
  }
  plan_.add(std::move(project));
  plan_.add(ops::DeltaPrep{.state_layer = state,
                           .heads = d,
                           .convolution = weight("blk.*.ssm_conv1d", "weight"),
                           .rate = w_.get("blk.*.ssm_a", layer_),
                           .dt_bias = weight("blk.*.ssm_dt", "bias"),
                           .query_scale = 1.0f / std::sqrt(static_cast<float>(d.key_size)),
                           .in = projected,
                           .out = prepared});
  plan_.add(ops::DeltaScan{.state_layer = state, .heads = d, .in = prepared, .out = scanned});
  plan_.add(ops::DeltaOut{
      .heads = d, .norm = norm_spec("blk.*.ssm_norm.weight", layer_), .in = scanned, .gate = projected, .out = mixed_});
}

void DecoderWriter::feed_forward() {
  const int width = layer().feed_forward;
  mixed_ = plan_.buffer("gated", width);
  ops::WeightRef gate = weight("blk.*.ffn_gate", "weight"), up = weight("blk.*.ffn_up", "weight");
  if (gate == nullptr) {
    gate = plan_.rows_of(up, 0, width);
    up = plan_.rows_of(up, width, width);
  }
  plan_.add(ops::GatedPair{.gate = gate,
                           .up = up,
                           .gate_bias = weight("blk.*.ffn_gate", "bias"),
                           .up_bias = weight("blk.*.ffn_up", "bias"),
                           .activation = p_.activation,
                           .in = x_,
                           .out = mixed_});
}

void DecoderWriter::add_projection(std::string_view tensor) {
  plan_.add(
      ops::ProjectAdd{.weight = weight(tensor, "weight"), .bias = weight(tensor, "bias"), .in = mixed_, .out = h_});
}

void DecoderWriter::add_normed_projection(std::string_view tensor, std::string_view post_norm, float scale) {
  const ops::BufferId added = plan_.buffer("added", p_.hidden_size);
  plan_.add(ops::ProjectAdd{
      .weight = weight(tensor, "weight"), .bias = weight(tensor, "bias"), .add = false, .in = mixed_, .out = added});
  plan_.add(ops::ResidualNorm{.residual = h_,
                              .addends = {{.in = added, .has_norm = true, .norm = norm_spec(post_norm, layer_)}},
                              .scale = scale,
                              .norm = {}});
}

void DecoderWriter::add_experts() {
  route({}, x_);
  run_experts(x_, h_, true);
}

// `how` may hold scales; the rest follows from the tensors.
void DecoderWriter::route(ops::Route how, ops::BufferId in) {
  const MixtureParameters& m = p_.mixture;
  how.weight = weight("blk.*.ffn_gate_inp", "weight");
  how.bias = weight("blk.*.ffn_gate_inp", "bias");
  how.shared_gate = weight("blk.*.ffn_gate_inp_shexp", "weight");
  how.scoring = m.scoring;
  how.renormalise = m.renormalise;
  how.shared = m.shared_width > 0;
  how.scale = m.scale;
  how.used = m.used;
  how.in = in;
  how.out = routes();
  plan_.add(how);
}

ops::BufferId DecoderWriter::routes() {
  return plan_.buffer("routes", 2 * (p_.mixture.used + (p_.mixture.shared_width > 0 ? 1 : 0)));
}

void DecoderWriter::run_experts(ops::BufferId in, ops::BufferId out, bool add) {
  const MixtureParameters& m = p_.mixture;
  const bool shared = m.shared_width > 0;
  ops::Experts experts{.activation = p_.activation,
                       .add = add,
                       .slots = m.used + (shared ? 1 : 0),
                       .in = in,
                       .routes = routes(),
                       .out = out};
  ops::WeightRef gate = weight("blk.*.ffn_gate_exps", "weight"), up = weight("blk.*.ffn_up_exps", "weight");
  if (const ops::WeightRef both = weight("blk.*.ffn_gate_up_exps", "weight"); both != nullptr) {
    gate = plan_.rows_of_each(both, 0, m.width);
    up = plan_.rows_of_each(both, m.width, m.width);
  }
  experts.routed = {.gate = gate,
                    .up = up,
                    .down = weight("blk.*.ffn_down_exps", "weight"),
                    .gate_bias = weight("blk.*.ffn_gate_exps", "bias"),
                    .up_bias = weight("blk.*.ffn_up_exps", "bias"),
                    .down_bias = weight("blk.*.ffn_down_exps", "bias"),
                    .count = m.experts,
                    .width = m.width};
  if (shared) {
    experts.shared = {.gate = weight("blk.*.ffn_gate_shexp", "weight"),
                      .up = weight("blk.*.ffn_up_shexp", "weight"),
                      .down = weight("blk.*.ffn_down_shexp", "weight"),
                      .count = 1,
                      .width = m.shared_width};
  }
  plan_.add(experts);
}

ops::BufferId DecoderWriter::router_input() { return plan_.buffer("router_input", p_.hidden_size); }
ops::BufferId DecoderWriter::experts_input() { return plan_.buffer("experts_input", p_.hidden_size); }

void DecoderWriter::norm_mixture() {
  plan_.add(ops::Norm{.norm = norm_spec("blk.*.ffn_gate_inp.scale", layer_), .in = h_, .out = router_input()});
  plan_.add(ops::Norm{.norm = norm_spec("blk.*.pre_ffw_norm_2.weight", layer_), .in = h_, .out = experts_input()});
}

void DecoderWriter::add_normed_mixture(float scale) {
  const ops::BufferId dense = plan_.buffer("dense", p_.hidden_size), mixed = plan_.buffer("mixed", p_.hidden_size);
  const ops::BufferId routed = plan_.buffer("routed", p_.hidden_size);
  plan_.add(ops::ProjectAdd{.weight = weight("blk.*.ffn_down", "weight"), .add = false, .in = mixed_, .out = dense});
  plan_.add(ops::Norm{.norm = norm_spec("blk.*.post_ffw_norm_1.weight", layer_), .in = dense, .out = mixed});
  route({.expert_scale = weight("blk.*.ffn_down_exps", "scale"),
         .logit_scale = 1.0f / std::sqrt(static_cast<float>(p_.hidden_size))},
        router_input());
  run_experts(experts_input(), routed, false);
  plan_.add(ops::ResidualNorm{
      .residual = mixed,
      .addends = {{.in = routed, .has_norm = true, .norm = norm_spec("blk.*.post_ffw_norm_2.weight", layer_)}},
      .norm = {}});
  plan_.add(ops::ResidualNorm{
      .residual = h_,
      .addends = {{.in = mixed, .has_norm = true, .norm = norm_spec("blk.*.post_ffw_norm.weight", layer_)}},
      .scale = scale,
      .norm = {}});
}

void DecoderWriter::pre_norm_decoder(std::string_view feed_forward_norm) {
  embed();
  for (int i = 0; i < p_.layer_count(); ++i) {
    begin_layer(i);
    norm("blk.*.attn_norm.weight");
    attention();
    add_projection("blk.*.attn_output");
    norm(feed_forward_norm);
    if (weight("blk.*.ffn_gate_inp", "weight") != nullptr) {
      add_experts();
    } else {
      feed_forward();
      add_projection("blk.*.ffn_down");
    }
  }
  head();
}

void DecoderWriter::sandwich_decoder() {
  embed();
  for (int i = 0; i < p_.layer_count(); ++i) {
    begin_layer(i);
    norm("blk.*.attn_norm.weight");
    attention();
    add_normed_projection("blk.*.attn_output", "blk.*.post_attention_norm.weight");
    norm("blk.*.ffn_norm.weight");
    feed_forward();
    add_normed_projection("blk.*.ffn_down", "blk.*.post_ffw_norm.weight");
  }
  head();
}

void DecoderWriter::head() {
  plan_.layer(-1);
  const ops::WeightRef output = w_.find("output.weight");
  plan_.add(ops::Head{.norm = norm_spec("output_norm.weight", -1),
                      .weight = output != nullptr ? output : w_.get("token_embd.weight"),
                      .scale = p_.logit_scale,
                      .softcap = p_.final_softcap,
                      .in = h_});
}

}  // namespace adze::model::family
