#include "model/huggingface/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "format/metadata.hpp"
#include "format/mlx_quantisation.hpp"
#include "model/registry.hpp"

namespace adze::model {
namespace {

using format::JsonObject;
using format::printable;

constexpr std::string_view kNoSuchModel = "running it without would give wrong answers; use another model";

// What all decoders' configurations share.
constexpr ImportRow kShared[] = {
    integer_row("num_hidden_layers", "block_count"),
    integer_row("hidden_size", "embedding_length"),
    integer_row("intermediate_size", "feed_forward_length"),
    integer_row("num_attention_heads", "attention.head_count"),
    integer_row("num_key_value_heads", "attention.head_count_kv"),
    integer_row("max_position_embeddings", "context_length", "2048"),
    integer_row("vocab_size", "vocab_size"),
    number_row("rms_norm_eps", "attention.layer_norm_rms_epsilon", "1e-6"),
    boolean_row("tie_word_embeddings", "tie_word_embeddings", "false"),
    boolean_row("attention_bias", folder_key::kAttentionBias, "false"),
    computed_row("head_dim",
                 [](ConfigImport& import) -> Status {
                   ADZE_TRY(const std::int64_t size, import.head_size());
                   import.write_integer("attention.key_length", size, "head_dim");
                   import.write_integer("attention.value_length", size, "head_dim");
                   return {};
                 }),
    computed_row("rope_parameters", import_rope),
    ignored_row("rope_theta"),
    ignored_row("rope_scaling"),
    ignored_row("partial_rotary_factor"),
    only_row("hidden_act", R"("silu")", "another activation"),
    only_row("is_decoder", "true|false", "an encoder"),
    only_row("is_encoder_decoder", "false", "an encoder and a decoder"),
    only_row("add_cross_attention", "false", "cross attention"),
};

// Of every configuration class, or of tools: none changes what a decoder computes. What a quantisation says is read
// with the weights.
constexpr std::string_view kHarmless[] = {"_attn_implementation_autoset",
                                          "_name_or_path",
                                          "architectures",
                                          "attention_dropout",
                                          "auto_map",
                                          "bos_token_id",
                                          "chunk_size_feed_forward",
                                          "dtype",
                                          "embd_pdrop",
                                          "eos_token_id",
                                          "hidden_dropout",
                                          "id2label",
                                          "initializer_range",
                                          "label2id",
                                          "max_window_layers",
                                          "mlp_bias",
                                          "model_type",
                                          "num_labels",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_router_logits",
                                          "pad_token_id",
                                          "pretraining_tp",
                                          "problem_type",
                                          "quantization",
                                          "quantization_config",
                                          "resid_pdrop",
                                          "return_dict",
                                          "rope_pct",
                                          "router_aux_loss_coef",
                                          "sep_token_id",
                                          "task_specific_params",
                                          "text_config",
                                          "torch_dtype",
                                          "transformers_version",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "use_cache"};

// Which quantisation a checkpoint is in, by its own name; empty: none, MLX's, or MXFP4, whose tensors are seen by their
// names.
Result<std::string> quantisation(const JsonObject& config) {
  if (format::MlxQuantisation::describes(config)) return std::string();
  for (const std::string_view key : {"quantization_config", "quantization", "compression_config"}) {
    if (!config.has(key)) continue;
    ADZE_TRY(const auto object, config.object(key));
    ADZE_TRY(const auto method, object->text("quant_method"));
    if (key == "quantization_config" && method == "mxfp4") continue;
    return fmt::format("{} ({})", method ? printable(*method) : "quantized weights", key);
  }
  return std::string();
}

struct Found {
  const FamilyImport* import = nullptr;
  std::string model_types;  // all that there are
};

Found find_import(std::string_view model_type) {
  Found found;
  for (const Family* family : families()) {
    for (const FamilyImport& import : family->imports) {
      for (const std::string_view type : import.model_types) {
        if (!found.model_types.empty()) found.model_types += ", ";
        found.model_types += type;
        if (type == model_type) found.import = &import;
      }
    }
  }
  return found;
}

const ImportRow* find_row(std::span<const ImportRow> rows, std::string_view key) {
  for (const ImportRow& row : rows) {
    if (row.key == key || (!row.alias.empty() && row.alias == key)) return &row;
  }
  return nullptr;
}

bool lists(std::string_view values, std::string_view value) {
  for (std::size_t at = 0; at <= values.size();) {
    const std::size_t end = std::min(values.find('|', at), values.size());
    if (values.substr(at, end - at) == value) return true;
    at = end + 1;
  }
  return false;
}

Status import_row(ConfigImport& import, const ImportRow& row, const JsonObject& from) {
  using enum ImportRow::Action;
  if (row.action == compute) return row.function(import);
  if (row.action == ignored) return {};
  if (row.action == only) {
    if (!from.has(row.key) || lists(row.target, from.json(row.key))) return {};
    return refuse_setting(import, row.key, row.what);
  }
  // The default is read like a value of the file.
  std::optional<JsonObject> defaults;
  const std::string_view key = !row.alias.empty() && !from.has(row.key) && from.has(row.alias) ? row.alias : row.key;
  if (!from.has(key)) {
    if (row.otherwise.empty() || from.contains(key)) {  // null says "none"
      import.note(row.target, key);
      return {};
    }
    ADZE_TRY(defaults, JsonObject::parse(fmt::format("{{\"{}\":{}}}", key, row.otherwise), from.file()));
  }
  const JsonObject& object = defaults ? *defaults : from;
  if (row.action == integer) {
    ADZE_TRY(const auto values, object.integers(key));
    object.is_array(key) ? import.write_integers(row.target, *values, key)
                         : import.write_integer(row.target, values->front(), key);
  } else if (row.action == number) {
    ADZE_TRY(const auto value, object.number(key));
    import.write_number(row.target, *value, key);
  } else {
    ADZE_TRY(const auto value, object.boolean(key));
    import.write_boolean(row.target, *value, key);
  }
  return {};
}

}  // namespace

std::string ConfigImport::full(std::string_view target) const {
  return fmt::format("{}.{}", family_.architecture, target);
}

std::string ConfigImport::note(std::string_view target, std::string_view source) {
  std::string key = full(target);
  sources_.emplace_back(key, fmt::format("{}'s {}", config_.file(), source));
  return key;
}

void ConfigImport::write_integers(std::string_view target, std::span<const std::int64_t> values,
                                  std::string_view source) {
  std::vector<std::int32_t> narrow;
  for (const std::int64_t value : values)
    narrow.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(value, INT32_MIN, INT32_MAX)));
  out_.add_i32s(note(target, source), narrow);
}
void ConfigImport::write_integer(std::string_view target, std::int64_t value, std::string_view source) {
  out_.add_i64(note(target, source), value);
}
void ConfigImport::write_number(std::string_view target, double value, std::string_view source) {
  out_.add_f32(note(target, source), static_cast<float>(value));
}
void ConfigImport::write_numbers(std::string_view target, std::span<const double> values, std::string_view source) {
  std::vector<float> narrow;
  for (const double value : values) narrow.push_back(static_cast<float>(value));
  out_.add_f32s(note(target, source), narrow);
}
void ConfigImport::write_boolean(std::string_view target, bool value, std::string_view source) {
  out_.add_bool(note(target, source), value);
}
void ConfigImport::write_text(std::string_view target, std::string_view value, std::string_view source) {
  out_.add_string(note(target, source), value);
}
void ConfigImport::write_booleans(std::string_view target, const std::vector<bool>& values, std::string_view source) {
  out_.add_bools(note(target, source), values);
}

Result<std::int64_t> ConfigImport::head_size() const {
  ADZE_TRY(const auto given, config_.integer("head_dim"));
  if (given) return *given;
  if (family_.head_size > 0) return family_.head_size;
  ADZE_TRY(const auto hidden, config_.integer("hidden_size"));
  ADZE_TRY(const auto heads, config_.integer("num_attention_heads"));
  if (!hidden || !heads || *heads <= 0 || *hidden % *heads != 0) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{}: there is no head_dim, and hidden_size {} does not divide by num_attention_heads {}",
                            config_.file(), config_.shown("hidden_size"), config_.shown("num_attention_heads")),
                "the file is damaged or of another kind of model: get it again");
  }
  return *hidden / *heads;
}

tl::unexpected<Error> refuse_setting(const ConfigImport& import, std::string_view key, std::string_view what) {
  return fail(ErrorCode::unsupported_feature,
              fmt::format("the model asks for {} ({}: \"{}\" is {}), which Adze does not compute for this family", what,
                          import.config().file(), key, import.config().shown(key)),
              std::string(kNoSuchModel));
}

Status import_full_attention(ConfigImport& import) {
  const JsonObject& config = import.config();
  ADZE_TRY(const auto used, config.boolean("use_sliding_window"));
  if (!used || !*used || !config.has("sliding_window")) return {};
  if (config.has("layer_types")) return check_layer_types(import, 1);
  ADZE_TRY(const auto layers, config.integer("num_hidden_layers"));
  ADZE_TRY(const auto full, config.integer("max_window_layers"));
  if (layers && full.value_or(28) >= *layers) return {};
  return refuse_setting(import, "use_sliding_window", "sliding attention in some layers");
}

Result<std::vector<bool>> sliding_layers(ConfigImport& import, std::int64_t layers, std::int64_t period) {
  ADZE_TRY(const auto types, import.config().texts("layer_types"));
  if (types && std::ssize(*types) != layers)
    return refuse_setting(import, "layer_types",
                          fmt::format("the kinds of {} layers where it has {}", types->size(), layers));
  std::vector<bool> slides;
  for (std::int64_t i = 0; i < layers; ++i) {
    slides.push_back((i + 1) % period != 0);
    if (!types) continue;
    const std::string& type = (*types)[static_cast<std::size_t>(i)];
    slides.back() = type == "sliding_attention";
    if (!slides.back() && type != "full_attention")
      return refuse_setting(import, "layer_types", fmt::format("'{}' in layer {}", printable(type), i));
  }
  return slides;
}

Status check_layer_types(ConfigImport& import, std::int64_t period) {
  ADZE_TRY(const auto types, import.config().texts("layer_types"));
  if (!types) return {};
  ADZE_TRY(const std::vector<bool> slides, sliding_layers(import, std::ssize(*types), period));
  for (std::size_t i = 0; i < slides.size(); ++i) {
    if (slides[i] == ((static_cast<std::int64_t>(i) + 1) % period != 0)) continue;
    return refuse_setting(import, "layer_types", fmt::format("'{}' in layer {}", (*types)[i], i));
  }
  return {};
}

Status import_query_scale(ConfigImport& import) {
  constexpr std::string_view kKey = "query_pre_attn_scalar";
  ADZE_TRY(const auto scalar, import.config().number(kKey));
  import.write_number("attention.scale", 1.0 / std::sqrt(scalar.value_or(256.0)), kKey);
  return {};
}

Result<ImportedConfig> import_config(const JsonObject& config, format::GgufWriter& out) {
  ADZE_TRY(const auto nested, config.object("text_config"));
  const JsonObject& text = nested ? *nested : config;
  ADZE_TRY(auto model_type, text.text("model_type"));
  if (!model_type) {
    ADZE_TRY(model_type, config.text("model_type"));
  }
  if (!model_type) {
    return fail(ErrorCode::corrupt_file, fmt::format("{} names no model_type", config.file()),
                "the folder holds no Hugging Face model, or an incomplete one");
  }
  const Found found = find_import(*model_type);
  if (found.import == nullptr) {
    return fail(ErrorCode::unsupported_architecture,
                fmt::format("the folder itself is readable, but its model_type '{}' is none that Adze has",
                            printable(*model_type)),
                fmt::format("supported model types: {}", found.model_types));
  }
  for (const JsonObject* object : {&config, &text}) {
    ADZE_TRY(const std::string method, quantisation(*object));
    if (method.empty()) continue;
    return fail(ErrorCode::unsupported_feature,
                fmt::format("the weights are quantised by {}, which Adze does not read from safetensors", method),
                "use the model's bfloat16 weights, or a GGUF of it");
  }

  out.add_string("general.architecture", found.import->architecture);
  ConfigImport import(text, *found.import, out);
  const std::span<const ImportRow> own = found.import->rows;
  for (const ImportRow& row : own) {
    // A multimodal model's own config says whether the head is tied.
    const bool outer = row.key == "tie_word_embeddings" && !text.has(row.key);
    ADZE_TRY_STATUS(import_row(import, row, outer ? config : text));
  }
  for (const ImportRow& row : kShared) {
    if (find_row(own, row.key) != nullptr) continue;
    const bool outer = row.key == "tie_word_embeddings" && !text.has(row.key);
    ADZE_TRY_STATUS(import_row(import, row, outer ? config : text));
  }
  ImportedConfig imported{std::string(found.import->architecture), std::move(import.sources()), {}};
  for (std::string& key : text.keys()) {
    const bool known = find_row(own, key) != nullptr || find_row(kShared, key) != nullptr ||
                       std::ranges::find(kHarmless, key) != std::end(kHarmless);
    if (!known && text.has(key)) imported.unknown.push_back(std::move(key));
  }
  return imported;
}

Status import_generation_config(const JsonObject& config, format::GgufWriter& out,
                                std::vector<std::pair<std::string, std::string>>& sources) {
  ADZE_TRY(const auto sample, config.boolean("do_sample"));
  if (sample && !*sample) return {};
  constexpr std::pair<std::string_view, std::string_view> kNumbers[] = {
      {"temperature", "general.sampling.temp"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  const auto note = [&](std::string_view target, std::string_view key) {
    sources.emplace_back(target, fmt::format("{}'s {}", config.file(), key));
  };
  for (const auto& [key, target] : kNumbers) {
    note(target, key);
    ADZE_TRY(const auto value, config.number(key));
    if (value) out.add_f32(target, static_cast<float>(*value));
  }
  constexpr std::string_view kTopK = "general.sampling.top_k";
  note(kTopK, "top_k");
  ADZE_TRY(const auto top_k, config.integer("top_k"));
  if (top_k) out.add_i64(kTopK, *top_k);
  return {};
}

}  // namespace adze::model
