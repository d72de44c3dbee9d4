#include "model/hyperparameters.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.hpp"

namespace adze::model {
namespace {

constexpr const char* kDamaged = "the file is damaged or was made by a broken converter: download or convert it again";

tl::unexpected<Error> out_of_range(const std::string& key, std::string_view found, const std::string& allowed) {
  return fail(ErrorCode::corrupt_file, fmt::format("{} is {}, allowed is {}", key, found, allowed), kDamaged);
}

Status check_range(const std::string& key, std::int64_t value, ConfigReader::Range allowed) {
  if (value >= allowed.min && value <= allowed.max) return {};
  return out_of_range(key, fmt::format("{}", value), fmt::format("{} to {}", allowed.min, allowed.max));
}

Status check_range(const std::string& key, float value, ConfigReader::FloatRange allowed) {
  if (static_cast<double>(value) > allowed.above && static_cast<double>(value) <= allowed.max) return {};
  return out_of_range(key, fmt::format("{}", value),
                      fmt::format("more than {}, at most {}", allowed.above, allowed.max));
}

// How many tokens the file says there are: the key, else the length of the vocabulary. Rows without a token (padding)
// are fine; tokens without a row are not.
Result<int> read_vocabulary_size(const ConfigReader& reader) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const format::MetadataValue* tokens = reader.metadata().find(kTokens);
  const auto count = tokens == nullptr ? 0 : static_cast<std::int64_t>(tokens->count);
  if (tokens != nullptr) {
    if (tokens->type != format::ValueType::array || tokens->element != format::ValueType::string) {
      return fail(ErrorCode::corrupt_file,
                  fmt::format("{} is {}, expected an array of strings", kTokens, format::describe_value(*tokens)),
                  kDamaged);
    }
    ADZE_TRY_STATUS(check_range(std::string(kTokens) + " (length)", count, {1, limits::kMaxVocabulary}));
  }
  if (!reader.has("vocab_size") && tokens != nullptr) return static_cast<int>(count);
  ADZE_TRY(const std::int64_t size, reader.integer("vocab_size", {1, limits::kMaxVocabulary}));
  if (count > size) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{} has {} tokens, more than the {} that {} allows", kTokens, count, size,
                            reader.full("vocab_size")),
                kDamaged);
  }
  return static_cast<int>(size);
}

// Given, or the hidden size shared out among the heads of the layer.
Result<int> read_head_size(const ConfigReader& reader, int hidden, int heads) {
  if (reader.has("attention.key_length")) {
    ADZE_TRY(const std::int64_t size, reader.integer("attention.key_length", {1, limits::kMaxHeadSize}));
    return static_cast<int>(size);
  }
  if (hidden % heads != 0) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{} {} is no multiple of {} {} and there is no {}", reader.full("embedding_length"), hidden,
                            reader.full("attention.head_count"), heads, reader.full("attention.key_length")),
                kDamaged);
  }
  const int size = hidden / heads;
  ADZE_TRY_STATUS(
      check_range(fmt::format("{} / {}", reader.full("embedding_length"), reader.full("attention.head_count")),
                  std::int64_t{size}, {1, limits::kMaxHeadSize}));
  return size;
}

Result<std::vector<float>> read_rope_factors(const ConfigReader& reader, std::string_view key, int pairs) {
  const format::MetadataValue* value = reader.metadata().find(reader.full(key));
  if (value == nullptr || value->count != static_cast<std::uint64_t>(pairs)) {
    return out_of_range(reader.full(key), fmt::format("{} factors", value == nullptr ? 0 : value->count),
                        fmt::format("one for each of {} pairs", pairs));
  }
  ADZE_TRY(auto factors, reader.metadata().get_f32_per_layer(reader.full(key), static_cast<std::size_t>(pairs)));
  for (const float factor : factors) {
    if (factor > 0.0f && static_cast<double>(factor) <= limits::kMaxRopeFactor) continue;
    return out_of_range(reader.full(key), fmt::format("{}", factor),
                        fmt::format("more than 0, at most {}", limits::kMaxRopeFactor));
  }
  return factors;
}

}  // namespace

std::string ConfigReader::full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

Status ConfigReader::require(std::string_view key) const {
  if (has(key)) return {};
  return fail(ErrorCode::corrupt_file, fmt::format("the metadata key {} is missing", full(key)), kDamaged);
}

Result<std::int64_t> ConfigReader::integer(std::string_view key, Range allowed) const {
  ADZE_TRY_STATUS(require(key));
  return integer_or(key, 0, allowed);
}

Result<std::int64_t> ConfigReader::integer_or(std::string_view key, std::int64_t fallback, Range allowed) const {
  if (!has(key)) return fallback;
  ADZE_TRY(const std::int64_t value, metadata_.get_i64(full(key)));
  ADZE_TRY_STATUS(check_range(full(key), value, allowed));
  return value;
}

Result<bool> ConfigReader::flag_or(std::string_view key, bool fallback) const {
  return has(key) ? metadata_.get_bool(full(key)) : fallback;
}

Result<std::vector<std::int64_t>> ConfigReader::per_layer(std::string_view key, std::size_t layers,
                                                          Range allowed) const {
  ADZE_TRY_STATUS(require(key));
  ADZE_TRY(std::vector<std::int64_t> values, metadata_.get_i64_per_layer(full(key), layers));
  for (const std::int64_t value : values) ADZE_TRY_STATUS(check_range(full(key), value, allowed));
  return values;
}

Result<std::vector<bool>> ConfigReader::flags_per_layer(std::string_view key, std::size_t layers) const {
  ADZE_TRY_STATUS(require(key));
  ADZE_TRY(const auto flags, metadata_.get_bools(full(key)));
  if (flags.size() != layers) {
    return out_of_range(full(key), fmt::format("an array of {}", flags.size()), fmt::format("one of {}", layers));
  }
  std::vector<bool> values;
  for (std::size_t i = 0; i < layers; ++i) values.push_back(flags[i]);
  return values;
}

Result<float> ConfigReader::number(std::string_view key, FloatRange allowed) const {
  ADZE_TRY_STATUS(require(key));
  return number_or(key, 0.0f, allowed);
}

Result<float> ConfigReader::number_or(std::string_view key, float fallback, FloatRange allowed) const {
  if (!has(key)) return fallback;
  ADZE_TRY(const float value, metadata_.get_f32(full(key)));
  ADZE_TRY_STATUS(check_range(full(key), value, allowed));
  return value;
}

Status ConfigReader::refuse_unless(std::string_view key, double neutral, std::string_view what) const {
  const format::MetadataValue* value = metadata_.find(full(key));
  if (value == nullptr) return {};
  const bool boolean = value->type == format::ValueType::boolean;
  if (boolean) {
    ADZE_TRY(const bool found, metadata_.get_bool(full(key)));
    if (found == (neutral != 0.0)) return {};
  } else if (value->type != format::ValueType::array && value->type != format::ValueType::string) {
    ADZE_TRY(const float found, metadata_.get_f32(full(key)));
    if (static_cast<double>(found) == neutral) return {};
  }
  return fail(ErrorCode::unsupported_feature,
              fmt::format("the model asks for {} ({} is {}), which Adze does not compute for this family", what,
                          full(key), format::describe_value(*value)),
              "running it without would give wrong answers; use another model");
}

Result<Hyperparameters> read_sizes(const ConfigReader& reader) {
  Hyperparameters p;
  ADZE_TRY(const std::int64_t layers, reader.integer("block_count", {1, limits::kMaxLayers}));
  ADZE_TRY(const std::int64_t hidden, reader.integer("embedding_length", {1, limits::kMaxHidden}));
  ADZE_TRY(p.context_length, reader.integer("context_length", {1, limits::kMaxContext}));
  ADZE_TRY(p.vocabulary_size, read_vocabulary_size(reader));
  p.hidden_size = static_cast<int>(hidden);
  // Says nothing in GGUF files, where a missing output matrix means that the embedding takes its place.
  ADZE_TRY(p.tied_output, reader.metadata().get_bool_or(reader.full("tie_word_embeddings"), true));

  const auto count = static_cast<std::size_t>(layers);
  ADZE_TRY(const auto heads, reader.per_layer("attention.head_count", count, {1, limits::kMaxHeads}));
  std::vector<std::int64_t> kv_heads = heads;
  if (reader.has("attention.head_count_kv")) {
    ADZE_TRY(kv_heads, reader.per_layer("attention.head_count_kv", count, {1, limits::kMaxHeads}));
  }
  std::vector<std::int64_t> feed_forward(count, 0);
  if (reader.has("feed_forward_length") || !reader.has("expert_feed_forward_length")) {
    ADZE_TRY(feed_forward, reader.per_layer("feed_forward_length", count, {1, limits::kMaxFeedForward}));
  }
  p.layers.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    LayerParameters& layer = p.layers[i];
    layer.heads = static_cast<int>(heads[i]);
    layer.kv_heads = static_cast<int>(kv_heads[i]);
    layer.feed_forward = static_cast<int>(feed_forward[i]);
    ADZE_TRY(layer.head_size, read_head_size(reader, p.hidden_size, layer.heads));
    if (layer.heads % layer.kv_heads != 0) {
      return fail(ErrorCode::corrupt_file,
                  fmt::format("{} {} is no multiple of {} {} in layer {}", reader.full("attention.head_count"),
                              layer.heads, reader.full("attention.head_count_kv"), layer.kv_heads, i),
                  kDamaged);
    }
    ADZE_TRY_STATUS(
        reader.refuse_unless("attention.value_length", layer.head_size, "values of another size than keys"));
  }
  return p;
}

Result<MixtureParameters> read_mixture(const ConfigReader& reader) {
  constexpr const char* kOther = "another way of weighing experts";
  ADZE_TRY_STATUS(reader.refuse_unless("interleave_moe_layer_step", 1, "experts in some layers only"));
  ADZE_TRY_STATUS(reader.refuse_unless("moe_every_n_layers", 1, "experts in some layers only"));
  ADZE_TRY_STATUS(reader.refuse_unless("leading_dense_block_count", 0, "experts in some layers only"));
  ADZE_TRY_STATUS(reader.refuse_unless("expert_group_count", 1, "experts chosen by group"));
  ADZE_TRY_STATUS(reader.refuse_unless("expert_weights_norm", 1, kOther));
  MixtureParameters m;
  // 1 is a softmax over all experts, 3 one over the chosen: the same once it is renormalised.
  ADZE_TRY(const std::int64_t scoring, reader.integer_or("expert_gating_func", 1, {0, 1000}));
  if (scoring != 3) ADZE_TRY_STATUS(reader.refuse_unless("expert_gating_func", 1, kOther));
  ADZE_TRY(const std::int64_t experts, reader.integer("expert_count", {1, limits::kMaxExperts}));
  ADZE_TRY(const std::int64_t used,
           reader.integer("expert_used_count", {1, std::min(experts, limits::kMaxExpertsUsed)}));
  ADZE_TRY(const std::int64_t width, reader.integer("expert_feed_forward_length", {1, limits::kMaxFeedForward}));
  ADZE_TRY(const std::int64_t shared,
           reader.integer_or("expert_shared_feed_forward_length", 0, {0, limits::kMaxFeedForward}));
  ADZE_TRY(m.scale, reader.number_or("expert_weights_scale", 1.0f, {0.0, 1e4}));
  m.experts = static_cast<int>(experts);
  m.used = static_cast<int>(used);
  m.width = static_cast<int>(width);
  m.shared_width = static_cast<int>(shared);
  return m;
}

Status refuse_other_settings(const ConfigReader& reader, std::span<const std::string_view> known) {
  struct Refused {
    std::string_view key;
    double neutral;
    std::string_view what;
  };
  static constexpr Refused kRefused[] = {
      {"expert_count", 0, "a mixture of experts"},
      {"attention.sliding_window", 0, "sliding attention"},
      {"attention.sliding_window_pattern", 1, "sliding attention in some layers only"},
      {"attention.causal", 1, "attention to later positions"},
      {"attention.clamp_kqv", 0, "clamped queries, keys and values"},
      {"attention.max_alibi_bias", 0, "ALiBi position biases"},
      {"attention.temperature_scale", 0, "queries scaled by position"},
      {"attention.q_lora_rank", 0, "low-rank queries"},
      {"attention.kv_lora_rank", 0, "a low-rank KV cache"},
      {"attention.shared_kv_layers", 0, "layers that share keys and values"},
      {"attn_logit_softcapping", 0, "soft-capped attention scores"},
      {"final_logit_softcapping", 0, "soft-capped logits"},
      {"use_parallel_residual", 0, "attention and feed-forward in parallel"},
      {"embedding_scale", 1, "scaled embeddings"},
      {"residual_scale", 1, "scaled residuals"},
      {"logit_scale", 1, "scaled logits"},
      {"nextn_predict_layers", 0, "layers that predict further tokens"},
      {"pooling_type", 0, "a pooled embedding in place of logits"},
  };
  for (const Refused& setting : kRefused) {
    if (std::ranges::find(known, setting.key) != known.end()) continue;
    ADZE_TRY_STATUS(reader.refuse_unless(setting.key, setting.neutral, setting.what));
  }
  return {};
}

Result<RopeSettings> read_rope(const ConfigReader& reader, const Hyperparameters& parameters) {
  int head_size = parameters.layers.front().head_size;
  for (const LayerParameters& layer : parameters.layers) head_size = std::min(head_size, layer.head_size);
  RopeSettings rope;
  ADZE_TRY(const std::int64_t dims, reader.integer_or("rope.dimension_count", head_size, {2, head_size}));
  if (dims % 2 != 0)
    return out_of_range(reader.full("rope.dimension_count"), fmt::format("{}", dims), "an even number");
  rope.dims = static_cast<int>(dims);
  ADZE_TRY(rope.base, reader.number_or("rope.freq_base", 10000.0f, {1.0, limits::kMaxRopeBase}));

  // Files of 2023 say rope.scale_linear instead of type and factor.
  ADZE_TRY(const float scale_linear, reader.number_or("rope.scale_linear", 1.0f, {0.0, limits::kMaxRopeFactor}));
  ADZE_TRY(rope.factor, reader.number_or("rope.scaling.factor", scale_linear, {0.0, limits::kMaxRopeFactor}));
  ADZE_TRY(const std::string_view type,
           reader.metadata().get_string_or(reader.full("rope.scaling.type"), rope.factor == 1.0 ? "none" : "linear"));
  const auto scaling = rope_scaling_from_name(type);
  if (!scaling) {
    return fail(ErrorCode::unsupported_feature,
                fmt::format("{} is '{}', a rope scaling that Adze does not have", reader.full("rope.scaling.type"),
                            format::printable(type)),
                "Adze has none, linear, llama3, yarn and longrope");
  }
  rope.scaling = *scaling;
  ADZE_TRY(rope.original_context, reader.integer_or("rope.scaling.original_context_length", parameters.context_length,
                                                    {1, limits::kMaxContext}));
  ADZE_TRY(rope.attention_factor, reader.number_or("rope.scaling.attn_factor", 1.0f, {0.0, 100.0}));
  if (reader.has(folder_key::kShortFactors)) {
    ADZE_TRY(rope.short_factors, read_rope_factors(reader, folder_key::kShortFactors, rope.dims / 2));
    ADZE_TRY(rope.long_factors, read_rope_factors(reader, folder_key::kLongFactors, rope.dims / 2));
  }
  ADZE_TRY(rope.low_frequency_factor, reader.number_or("rope.scaling.low_freq_factor", 1.0f, {0.0, 1e6}));
  ADZE_TRY(rope.high_frequency_factor, reader.number_or("rope.scaling.high_freq_factor", 4.0f, {0.0, 1e6}));
  if (rope.scaling == RopeScaling::llama3 && rope.high_frequency_factor <= rope.low_frequency_factor) {
    return out_of_range(reader.full("rope.scaling.high_freq_factor"), fmt::format("{}", rope.high_frequency_factor),
                        fmt::format("more than {}", rope.low_frequency_factor));
  }
  ADZE_TRY(rope.beta_fast, reader.number_or("rope.scaling.yarn_beta_fast", 32.0f, {0.0, 1e6}));
  ADZE_TRY(rope.beta_slow, reader.number_or("rope.scaling.yarn_beta_slow", 1.0f, {0.0, 1e6}));
  ADZE_TRY(rope.round_ramp, reader.flag_or(folder_key::kRoundRamp, true));
  ADZE_TRY_STATUS(reader.refuse_unless("rope.scaling.alpha", 0.0, "NTK-aware rope scaling by alpha"));
  // transformers' mscale_all_dim; cos and sin are divided by its magnitude (the mscale above it is 1 in GGUF).
  ADZE_TRY(const float multiplier, reader.number_or("rope.scaling.yarn_log_multiplier", 0.0f, {0.0, 1e3}));
  if (rope.scaling == RopeScaling::yarn && multiplier > 0.0f)
    rope.attention_factor /= yarn_magnitude(rope.factor, static_cast<double>(multiplier));
  ADZE_TRY_STATUS(reader.refuse_unless("rope.scaling.yarn_ext_factor", 1.0, "a YaRN extrapolation factor"));
  ADZE_TRY_STATUS(reader.refuse_unless("rope.scaling.yarn_attn_factor", 1.0, "a second YaRN attention factor"));
  return rope;
}

}  // namespace adze::model
