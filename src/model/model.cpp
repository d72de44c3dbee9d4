#include "model/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "model/huggingface/vocabulary.hpp"
#include "model/vocabulary.hpp"

namespace adze::model {
namespace {

// The family of a file, or why there is none.
Result<const Family*> choose_family(const format::WeightStore& store) {
  ADZE_TRY(const std::string_view type, store.metadata().get_string_or("general.type", "model"));
  if (type == "adapter") {
    return fail(ErrorCode::unsupported_feature, "the file is an adapter (LoRA), which Adze does not apply",
                "use a model with the adapter merged into it");
  }
  const std::string_view architecture = store.architecture();
  if (architecture.empty()) {
    return fail(ErrorCode::corrupt_file, "the metadata key general.architecture is missing",
                "the file is damaged or was made by a broken converter: download or convert it again");
  }
  const Family* family = find_family(architecture);
  if (family == nullptr) {
    return fail(ErrorCode::unsupported_architecture,
                fmt::format("the file itself is readable, but its architecture '{}' is none that Adze has",
                            format::printable(architecture)),
                fmt::format("supported architectures: {}", supported_architectures()));
  }
  if (store.tensors().empty()) {
    return fail(ErrorCode::not_a_model, "the file has a vocabulary but no weights",
                "it can serve `adze tokenize`; to run a model, use its complete file");
  }
  return family;
}

// How many positions the plan allows: asked for, or trained, stretched where the caller changed the scaling.
Result<std::int64_t> choose_context(const ModelOptions& options, const Hyperparameters& parameters,
                                    const RopeSettings& rope) {
  if (options.context < 0 || options.context > limits::kMaxContext) {
    return fail(ErrorCode::invalid_argument, fmt::format("a context of {} positions was asked for, allowed is 1 to {}",
                                                         options.context, limits::kMaxContext));
  }
  if (options.context > 0) return options.context;
  std::int64_t context = parameters.context_length;
  if (options.rope.any() && rope.scaling != RopeScaling::none) {
    const double stretched = static_cast<double>(rope.original_context) * rope.factor;
    context =
        std::max(context, static_cast<std::int64_t>(std::min(stretched, static_cast<double>(limits::kMaxContext))));
  }
  return context;
}

// The factors of longrope are tensors in GGUF; from here on they are settings.
Status take_long_rope(const Weights& weights, RopeSettings& rope) {
  constexpr const char* kDamaged =
      "the file is damaged or was made by a broken converter: download or convert it again";
  std::vector<float> short_factors = weights.values("rope_factors_short.weight");
  std::vector<float> long_factors = weights.values("rope_factors_long.weight");
  if (short_factors.empty() != long_factors.empty()) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("the tensor rope_factors_{}.weight is missing", short_factors.empty() ? "short" : "long"),
                kDamaged);
  }
  if (!short_factors.empty()) {
    rope.short_factors = std::move(short_factors);
    rope.long_factors = std::move(long_factors);
    rope.scaling = RopeScaling::longrope;  // Phi's files do not say so
  } else if (rope.scaling == RopeScaling::longrope && rope.short_factors.empty()) {
    return fail(ErrorCode::corrupt_file,
                "the model's rope scaling is longrope, but the tensors rope_factors_short.weight and "
                "rope_factors_long.weight are missing",
                kDamaged);
  }
  return {};
}

}  // namespace

Result<Model> Model::load(const std::filesystem::path& path, const ModelOptions& options) {
  ADZE_TRY(ModelSource source, open_model_source(path, options.map));
  return load(std::move(source), options);
}

Result<Model> Model::load(ModelSource source, const ModelOptions& options) {
  Model model(std::move(source.store));
  model.notes_ = std::move(source.notes);
  if (auto built = model.build(options); !built)
    return tl::unexpected(in_words_of(source.key_sources, std::move(built.error())));
  return model;
}

Status Model::build(const ModelOptions& options) {
  ADZE_TRY(family_, choose_family(store_));
  ADZE_TRY(parameters_, family_->config(ConfigReader(store_.metadata(), store_.architecture(), store_.format())));
  parameters_.architecture = store_.architecture();
  const std::vector<TensorRow> rows = family_->tensors(parameters_);
  if (!rope_is_interleaved(rows, store_.format())) parameters_.rope.interleaved = false;
  ADZE_TRY(weights_, Weights::resolve(rows, parameters_, store_));
  RopeSettings& rope = parameters_.rope;
  ADZE_TRY_STATUS(take_long_rope(weights_, rope));
  stated_rope_ = rope;
  if (options.check_manifest) {
    ADZE_TRY_STATUS(check_manifest_beside(manifest_source(), ManifestCheck::structure));
  }
  ADZE_TRY(predictors_, Weights::bind_predictors(rows, parameters_, store_));
  ADZE_TRY(rope, apply_overrides(rope, options.rope));
  ADZE_TRY(const std::int64_t context, choose_context(options, parameters_, rope));
  rope.beyond_original = context > rope.original_context;
  ADZE_TRY_STATUS(read_generation_defaults());

  store_.hold_vectors();
  PlanBuilder builder;
  family_->forward(parameters_, weights_, builder);
  plan_ = std::move(builder.plan());
  plan_.family = family_->name;
  plan_.hidden_size = parameters_.hidden_size;
  plan_.vocabulary_size = parameters_.vocabulary_size;
  plan_.context_length = static_cast<int>(context);

  if (const auto bound = predictors_.all(); !bound.empty()) {
    std::int64_t elements = 0;
    for (const ops::WeightRef ref : bound) elements += ref->shape.elements();
    notes_.push_back(
        fmt::format("blocks behind the last layer predict further tokens ({} tensors, {} parameters); they are "
                    "not used yet",
                    bound.size(), elements));
  }
  if (const std::size_t unused = store_.unused().size(); unused > 0) {
    notes_.push_back(fmt::format("{} tensor{} not used", unused, unused == 1 ? "" : "s"));
  }
  if (rope.use_factors && rope.beyond_original && !rope.long_factors.empty()) {
    notes_.push_back(
        fmt::format("positions turn by the factors for contexts beyond {0}; a context of at most {0} has others",
                    rope.original_context));
  }
  if (context > parameters_.context_length && !options.rope.any()) {
    notes_.push_back(fmt::format("the context of {} is longer than the {} positions the model was trained for", context,
                                 parameters_.context_length));
  }
  return {};
}

Status Model::read_generation_defaults() {
  constexpr const char* kBadAdvice =
      "the model's advice on sampling is damaged: correct or remove that value, or get the model again";
  const format::Metadata& metadata = store_.metadata();
  const auto number = [&](std::string_view key, double min, double max, std::optional<float>& out) -> Status {
    if (!metadata.has(key)) return {};
    ADZE_TRY(const float value, metadata.get_f32(key));
    if (!(static_cast<double>(value) >= min && static_cast<double>(value) <= max)) {
      return fail(ErrorCode::corrupt_file, fmt::format("{} is {}, allowed is {} to {}", key, value, min, max),
                  kBadAdvice);
    }
    out = value;
    return {};
  };
  const auto integer = [&](std::string_view key, std::int64_t min, std::optional<int>& out) -> Status {
    if (!metadata.has(key)) return {};
    ADZE_TRY(const std::int64_t value, metadata.get_i64(key));
    if (value < min || value > limits::kMaxVocabulary) {
      return fail(ErrorCode::corrupt_file,
                  fmt::format("{} is {}, allowed is {} to {}", key, value, min, limits::kMaxVocabulary), kBadAdvice);
    }
    out = static_cast<int>(value);
    return {};
  };
  ADZE_TRY_STATUS(number("general.sampling.temp", 0.0, 100.0, defaults_.temperature));
  ADZE_TRY_STATUS(number("general.sampling.top_p", 0.0, 1.0, defaults_.top_p));
  ADZE_TRY_STATUS(number("general.sampling.min_p", 0.0, 1.0, defaults_.min_p));
  ADZE_TRY_STATUS(number("general.sampling.penalty_repeat", 0.01, 100.0, defaults_.repetition_penalty));
  ADZE_TRY_STATUS(integer("general.sampling.top_k", 0, defaults_.top_k));
  ADZE_TRY_STATUS(integer("general.sampling.penalty_last_n", -1, defaults_.penalty_window));
  for (const std::string_view key : {"general.sampling.mirostat", "general.sampling.xtc_probability"}) {
    ADZE_TRY(const float value, metadata.get_f32_or(key, 0.0f));
    if (value != 0.0f) notes_.push_back(fmt::format("{} is not followed: Adze does not have this sampler", key));
  }
  return {};
}

ManifestSource Model::manifest_source() const {
  ManifestSource source{*family_, parameters_, store_};
  source.parameters.rope = stated_rope_;
  return source;
}

std::string Model::name() const {
  const auto name = metadata().get_string_or("general.name", "");
  if (name && !name->empty()) return format::printable(*name);
  return store_.path().stem().string();
}

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::shared_ptr<const Model>& model) {
  const format::WeightStore& weights = model->weights();
  if (weights.format() == format::StoreFormat::safetensors) return load_folder_tokenizer(weights.path());
  return load_tokenizer(model->metadata(), model);
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const tensor::TensorView& view : store_.tensors()) count += view.shape.elements();
  for (const std::string_view name : store_.unused()) count -= store_.find(name)->shape.elements();
  for (const ops::WeightRef ref : predictors_.all()) count -= ref->shape.elements();
  return count;
}

std::optional<std::string_view> Model::chat_template() const {
  const auto source = metadata().get_string("tokenizer.chat_template");
  if (!source || source->empty()) return std::nullopt;
  return *source;
}

Explanation explain(ModelSource source) {
  Explanation explanation;
  explanation.architecture = format::printable(source.store.architecture());
  if (const Family* family = find_family(source.store.architecture()); family != nullptr) {
    explanation.family = family->name;
    explanation.summary = family->summary;
  }
  auto model = Model::load(std::move(source));
  if (!model) {
    explanation.refusal = std::move(model.error());
    return explanation;
  }
  explanation.parameters = model->hyperparameters();
  explanation.notes = model->notes();
  return explanation;
}

}  // namespace adze::model
