// Each function binds every member of its type, so that a new member does not compile before it has its place here.
#include "model/hyperparameter_fields.hpp"

#include <concepts>
#include <utility>

namespace adze::model {
namespace {

std::string_view name_of(LayerParameters::Rope rope) {
  switch (rope) {
    case LayerParameters::Rope::main: return "main";
    case LayerParameters::Rope::local: return "local";
    case LayerParameters::Rope::none: return "none";
  }
  return "unknown";
}

std::string_view name_of(LayerParameters::Values values) {
  switch (values) {
    case LayerParameters::Values::own: return "own";
    case LayerParameters::Values::keys: return "keys";
    case LayerParameters::Values::either: return "either";
  }
  return "unknown";
}

std::string_view name_of(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::silu: return "silu";
    case ops::Activation::gelu_tanh: return "gelu_tanh";
    case ops::Activation::gelu_erf: return "gelu_erf";
    case ops::Activation::relu_squared: return "relu_squared";
    case ops::Activation::swiglu_oai: return "swiglu_oai";
  }
  return "unknown";
}

std::string_view name_of(ops::Route::Scoring scoring) {
  switch (scoring) {
    case ops::Route::Scoring::softmax: return "softmax";
    case ops::Route::Scoring::sigmoid: return "sigmoid";
  }
  return "unknown";
}

std::string_view name_of(ops::NormSpec::Kind norm) { return norm == ops::NormSpec::Kind::layer ? "layer" : "rms"; }
std::string_view name_of(RopeScaling scaling) { return rope_scaling_name(scaling); }

class FieldList {
 public:
  // The names of a group begin with its own: "rope.".
  explicit FieldList(std::string group = {}) : group_(std::move(group)) {}

  void add(std::string_view name, bool value) { push(name, value); }
  void add(std::string_view name, std::integral auto value) { push(name, static_cast<std::int64_t>(value)); }
  void add(std::string_view name, std::floating_point auto value) { push(name, static_cast<double>(value)); }
  void add(std::string_view name, const std::vector<float>& values) { push(name, values); }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void add(std::string_view name, Enum value) {
    push(name, name_of(value));
  }
  void add(FieldList&& group) {
    for (Field& field : group.fields_) fields_.push_back(std::move(field));
  }
  std::vector<Field> take() { return std::move(fields_); }

 private:
  void push(std::string_view name, Field::Value value) {
    fields_.push_back({group_ + std::string(name), std::move(value)});
  }

  std::string group_;
  std::vector<Field> fields_;
};

FieldList list(const RopeSettings& rope, std::string group) {
  // The last three say how a caller's wishes are met.
  const auto& [dims, interleaved, base, scaling, factor, original_context, low_frequency_factor, high_frequency_factor,
               beta_fast, beta_slow, turned_pairs, round_ramp, attention_factor, short_factors, long_factors,
               beyond_original, factors_are_scaling, use_factors] = rope;
  FieldList fields(std::move(group));
  fields.add("dims", dims);
  fields.add("interleaved", interleaved);
  fields.add("base", base);
  fields.add("scaling", scaling);
  fields.add("factor", factor);
  fields.add("original_context", original_context);
  fields.add("low_frequency_factor", low_frequency_factor);
  fields.add("high_frequency_factor", high_frequency_factor);
  fields.add("beta_fast", beta_fast);
  fields.add("beta_slow", beta_slow);
  fields.add("round_ramp", round_ramp);
  fields.add("turned_pairs", turned_pairs);
  fields.add("attention_factor", attention_factor);
  fields.add("short_factors", short_factors);
  fields.add("long_factors", long_factors);
  return fields;
}

FieldList list(const MixtureParameters& mixture) {
  const auto& [experts, used, width, shared_width, scoring, renormalise, scale] = mixture;
  FieldList fields("mixture.");
  fields.add("experts", experts);
  fields.add("used", used);
  fields.add("width", width);
  fields.add("shared_width", shared_width);
  fields.add("scoring", scoring);
  fields.add("renormalise", renormalise);
  fields.add("scale", scale);
  return fields;
}

FieldList list(const LayerParameters& layer, std::string group = {}) {
  const auto& [heads, kv_heads, head_size, feed_forward, window, rope, kv_source, values, delta, convolution] = layer;
  const auto& [key_heads, value_heads, key_size, value_size, tiled, gates_by_key_head] = delta;
  FieldList fields(std::move(group));
  fields.add("feed_forward", feed_forward);
  fields.add("heads", heads);
  fields.add("kv_heads", kv_heads);
  fields.add("head_size", head_size);
  fields.add("window", window);
  fields.add("rope", rope);
  fields.add("kv_source", kv_source);
  fields.add("values", values);
  fields.add("key_heads", key_heads);
  fields.add("value_heads", value_heads);
  fields.add("key_size", key_size);
  fields.add("value_size", value_size);
  fields.add("value_heads_tiled", tiled);
  fields.add("gates_by_key_head", gates_by_key_head);
  fields.add("convolution", convolution);
  return fields;
}

}  // namespace

std::vector<Field> fields_of(const LayerParameters& layer) { return list(layer).take(); }

std::vector<Field> fields_of(const Hyperparameters& parameters) {
  const auto& [architecture, vocabulary_size, hidden_size, context_length, norm, norm_epsilon, attention_scale,
               attention_softcap, value_norm, position_scale, position_interval, logit_scale, final_softcap,
               embedding_scale, layer_input_size, attention_biases, feed_forward_biases, tied_output, activation, rope,
               mixture, local_rope, layers, predictors, predictor] = parameters;
  FieldList fields;
  fields.add("vocabulary_size", vocabulary_size);
  fields.add("hidden_size", hidden_size);
  fields.add("layers", layers.size());
  fields.add("context_length", context_length);
  fields.add("norm", norm);
  fields.add("norm_epsilon", norm_epsilon);
  fields.add("attention_scale", attention_scale);
  fields.add("attention_softcap", attention_softcap);
  fields.add("value_norm", value_norm);
  fields.add("position_scale", position_scale);
  fields.add("position_interval", position_interval);
  fields.add("logit_scale", logit_scale);
  fields.add("final_softcap", final_softcap);
  fields.add("embedding_scale", embedding_scale);
  fields.add("layer_input_size", layer_input_size);
  fields.add("attention_biases", attention_biases);
  fields.add("feed_forward_biases", feed_forward_biases);
  fields.add("tied_output", tied_output);
  fields.add("activation", activation);
  fields.add(list(rope, "rope."));
  fields.add(list(local_rope, "local_rope."));
  fields.add(list(mixture));
  fields.add("predictors", predictors);
  fields.add(list(predictor, "predictor."));
  return fields.take();
}

}  // namespace adze::model
