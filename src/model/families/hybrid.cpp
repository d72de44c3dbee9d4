#include "model/families/hybrid.hpp"

#include <fmt/format.h>

#include "base/limits.hpp"

namespace adze::model::family {
namespace {

constexpr const char* kDamaged = "the file is damaged or was made by a broken converter: download or convert it again";

// Per layer of the file: the newer key, or every interval-th layer attends.
Result<std::vector<bool>> read_recurrent_layers(const ConfigReader& reader, std::size_t layers) {
  constexpr std::string_view kKey = "attention.recurrent_layers";
  if (reader.has(kKey)) return reader.flags_per_layer(kKey, layers);
  ADZE_TRY(const std::int64_t interval, reader.integer_or("full_attention_interval", 4, {1, limits::kMaxLayers}));
  std::vector<bool> recurrent(layers);
  for (std::size_t i = 0; i < layers; ++i) recurrent[i] = (i + 1) % static_cast<std::size_t>(interval) != 0;
  return recurrent;
}

Result<ops::DeltaHeads> read_heads(const ConfigReader& reader, ops::DeltaHeads heads) {
  ADZE_TRY(const std::int64_t key_heads, reader.integer("ssm.group_count", {1, limits::kMaxHeads}));
  ADZE_TRY(const std::int64_t value_heads, reader.integer("ssm.time_step_rank", {1, limits::kMaxHeads}));
  ADZE_TRY(const std::int64_t key_size, reader.integer("ssm.state_size", {1, limits::kMaxHeadSize}));
  ADZE_TRY(const std::int64_t inner, reader.integer("ssm.inner_size", {1, value_heads * limits::kMaxHeadSize}));
  if (value_heads % key_heads != 0 || inner % value_heads != 0) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{} {} must divide {} {}, and that {} {}", reader.full("ssm.group_count"), key_heads,
                            reader.full("ssm.time_step_rank"), value_heads, reader.full("ssm.inner_size"), inner),
                kDamaged);
  }
  heads.key_heads = static_cast<int>(key_heads);
  heads.value_heads = static_cast<int>(value_heads);
  // A folder has the heads as the model was trained, value heads side by side that share a key head.
  ADZE_TRY(const bool grouped, reader.flag_or(folder_key::kGroupedValueHeads, false));
  if (grouped) heads.tiled = false;
  heads.key_size = static_cast<int>(key_size);
  heads.value_size = static_cast<int>(inner / value_heads);
  return heads;
}

}  // namespace

Result<Hyperparameters> hybrid_config(const ConfigReader& reader, ops::DeltaHeads order,
                                      std::span<const std::string_view> known) {
  std::vector<std::string_view> keys(known.begin(), known.end());
  keys.emplace_back("nextn_predict_layers");
  ADZE_TRY(Hyperparameters p, decoder_config(reader, keys));
  p.predictor = p.layers.front();  // it attends to everything, whatever the layers do
  ADZE_TRY(const ops::DeltaHeads heads, read_heads(reader, order));
  ADZE_TRY(const std::int64_t convolution, reader.integer("ssm.conv_kernel", {1, limits::kMaxConvolution}));
  ADZE_TRY(const std::vector<bool> recurrent, read_recurrent_layers(reader, p.layers.size()));
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    LayerParameters& layer = p.layers[i];
    if (!recurrent[i]) continue;
    layer.heads = layer.kv_heads = layer.head_size = 0;
    layer.delta = heads;
    layer.convolution = static_cast<int>(convolution);
  }
  // The last ones are a head that predicts further tokens: the main pass ends before.
  ADZE_TRY(const std::int64_t further, reader.integer_or("nextn_predict_layers", 0, {0, p.layer_count() - 1}));
  p.layers.resize(p.layers.size() - static_cast<std::size_t>(further));
  p.predictors = static_cast<int>(further);
  return p;
}

std::vector<TensorRow> hybrid_tensors(const ops::DeltaHeads& order) {
  constexpr Dim hidden = Dim::hidden, none = Dim::none, query = Dim::query, key_value = Dim::key_value;
  constexpr Dim head = Dim::head, values = Dim::delta_values, heads = Dim::delta_heads;
  std::vector<TensorRow> rows = join(
      {stem_tensors(),
       {
           {"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", none, hidden},
           {"blk.*.post_attention_norm.weight", "model.layers.*.post_attention_layernorm.weight", none, hidden},
           // Layers that attend.
           {"blk.*.attn_q.weight", "model.layers.*.self_attn.q_proj.weight", Dim::gated_query, hidden},
           {"blk.*.attn_k.weight", "model.layers.*.self_attn.k_proj.weight", key_value, hidden},
           {"blk.*.attn_v.weight", "model.layers.*.self_attn.v_proj.weight", key_value, hidden},
           {"blk.*.attn_q_norm.weight", "model.layers.*.self_attn.q_norm.weight", none, head},
           {"blk.*.attn_k_norm.weight", "model.layers.*.self_attn.k_norm.weight", none, head},
           {"blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight", hidden, query},
           // Recurrent layers.
           {"blk.*.ssm_conv1d.weight", "model.layers.*.linear_attn.conv1d.weight", Dim::delta_channels,
            Dim::convolution},
           {"blk.*.ssm_a", "model.layers.*.linear_attn.A_log", none, heads, Need::required, Transform::negative_exp},
           {"blk.*.ssm_dt.bias", "model.layers.*.linear_attn.dt_bias", none, heads},
           {"blk.*.ssm_norm.weight", "model.layers.*.linear_attn.norm.weight", none, Dim::delta_value},
           {"blk.*.ssm_out.weight", "model.layers.*.linear_attn.out_proj.weight", hidden, values},
       }});
  constexpr Dim channels = Dim::delta_channels;
  if (order.gates_by_key_head) {  // a folder then has the projections grouped by key head as well
    constexpr std::string_view kProjections = "model.layers.*.linear_attn.in_proj_qkvz.weight";
    rows.push_back({"blk.*.attn_qkv.weight", kProjections, channels, hidden, Need::required, Transform::delta_qkv});
    rows.push_back({"blk.*.attn_gate.weight", kProjections, values, hidden, Need::required, Transform::delta_z});
    rows.push_back({"blk.*.ssm_ba.weight", "model.layers.*.linear_attn.in_proj_ba.weight", Dim::delta_gates, hidden});
  } else {
    rows.push_back({"blk.*.attn_qkv.weight", "model.layers.*.linear_attn.in_proj_qkv.weight", channels, hidden});
    rows.push_back({"blk.*.attn_gate.weight", "model.layers.*.linear_attn.in_proj_z.weight", values, hidden});
    rows.push_back({"blk.*.ssm_beta.weight", "model.layers.*.linear_attn.in_proj_b.weight", heads, hidden});
    rows.push_back({"blk.*.ssm_alpha.weight", "model.layers.*.linear_attn.in_proj_a.weight", heads, hidden});
  }
  for (TensorRow& row : rows) {
    if (row.gguf.ends_with("norm.weight") && row.gguf != "blk.*.ssm_norm.weight") row.transform = Transform::one_plus;
  }
  return rows;
}

Status import_delta_heads(ConfigImport& import) {
  constexpr std::string_view kSize = "linear_value_head_dim";
  ADZE_TRY(const auto size, import.config().integer(kSize));
  ADZE_TRY(const auto heads, import.config().integer("linear_num_value_heads"));
  const std::int64_t each = size.value_or(128), count = heads.value_or(32);
  if (each < 1 || each > limits::kMaxHeadSize || count < 1 || count > limits::kMaxHeads) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{}: {} value heads of {} values are not possible", import.config().file(), count, each),
                kDamaged);
  }
  import.write_integer("ssm.inner_size", each * count, "linear_value_head_dim * linear_num_value_heads");
  import.write_boolean(folder_key::kGroupedValueHeads, true, kSize);
  return {};
}

Status import_default_rotation(ConfigImport& import) {
  constexpr std::string_view kPart = "partial_rotary_factor";
  ADZE_TRY(const auto rope, import.config().object("rope_parameters"));
  if (import.config().has(kPart) || (rope && rope->has(kPart))) return {};  // import_rope reads it
  ADZE_TRY(const std::int64_t head_size, import.head_size());
  import.write_integer("rope.dimension_count", head_size / 4, kPart);
  return {};
}

Status import_recurrent_layers(ConfigImport& import) {
  constexpr std::string_view kTypes = "layer_types", kInterval = "full_attention_interval";
  ADZE_TRY(const auto types, import.config().texts(kTypes));
  if (!types) {
    ADZE_TRY(const auto interval, import.config().integer(kInterval));
    import.write_integer(kInterval, interval.value_or(4), kInterval);
    return {};
  }
  std::vector<bool> recurrent;
  for (const std::string& type : *types) {
    if (type != "linear_attention" && type != "full_attention")
      return refuse_setting(import, kTypes, "another kind of layer");
    recurrent.push_back(type == "linear_attention");
  }
  import.write_booleans("attention.recurrent_layers", recurrent, kTypes);
  return {};
}

void hybrid_mixer(DecoderWriter& decoder) {
  decoder.norm("blk.*.attn_norm.weight");
  if (decoder.layer().heads == 0) {
    decoder.delta_net();
    decoder.add_projection("blk.*.ssm_out");
  } else {
    decoder.attention();
    decoder.add_projection("blk.*.attn_output");
  }
  decoder.norm("blk.*.post_attention_norm.weight");
}

}  // namespace adze::model::family
