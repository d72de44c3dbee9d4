#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/pack_directory.hpp"
#include "base/limits.hpp"
#include "engine/api_impl.hpp"
#include "engine/draft_model.hpp"
#include "engine/memory.hpp"
#include "engine/policy.hpp"
#include "engine/tuning.hpp"
#include "model/model.hpp"

namespace adze::engine {
namespace {

// The context that automatic sizing leaves other programs: an eighth of what is available.
std::uint64_t with_headroom(std::uint64_t available) { return available - available / 8; }

Status check(const LoadOptions& options) {
  const auto outside = [](std::string_view name, std::int64_t value, std::int64_t max) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} is {}, but must be from 0 (automatic) to {}", name, value, max));
  };
  if (options.threads < 0 || options.threads > limits::kMaxThreads) {
    return outside("threads", options.threads, limits::kMaxThreads);
  }
  if (options.chunk < 0 || options.chunk > limits::kMaxBatchRows) {
    return outside("chunk", options.chunk, limits::kMaxBatchRows);
  }
  if (options.sequences < 0 || options.sequences > limits::kMaxSequences) {
    return outside("sequences", options.sequences, limits::kMaxSequences);
  }
  if (options.context < 0 || options.context > limits::kMaxContext) {
    return outside("context", options.context, limits::kMaxContext);
  }
  return {};
}

model::ModelOptions model_options(const LoadOptions& options) {
  const auto widen = [](std::optional<float> value) -> std::optional<double> {
    if (!value) return std::nullopt;
    return static_cast<double>(*value);
  };
  return {.rope = {.scaling = options.rope.scaling,
                   .frequency_base = widen(options.rope.frequency_base),
                   .factor = widen(options.rope.scaling_factor),
                   .original_context = options.rope.original_context},
          .context = options.context};
}

backend::PrepareOptions prepare_options(const LoadOptions& options, const ops::Plan& plan) {
  backend::PrepareOptions prepare;
  switch (options.compute) {
    case ComputeType::automatic: prepare.compute = backend::Compute::automatic; break;
    case ComputeType::f32: prepare.compute = backend::Compute::f32; break;
  }
  switch (options.kv_type) {
    case KvCacheType::automatic: prepare.kv_type = backend::KvType::automatic; break;
    case KvCacheType::f32: prepare.kv_type = backend::KvType::f32; break;
    case KvCacheType::f16: prepare.kv_type = backend::KvType::f16; break;
    case KvCacheType::q8_0: prepare.kv_type = backend::KvType::q8_0; break;
  }
  prepare.kernel_set = options.kernel_set;
  prepare.threads = options.threads;
  prepare.concurrent = options.concurrent;
  prepare.max_batch_rows =
      static_cast<int>(std::min<std::int64_t>(options.chunk > 0 ? options.chunk : policy::kChunk, plan.context_length));
  set_pages(plan, plan.context_length, options.sequences, prepare);
  prepare.max_slots = (options.sequences > 0 ? options.sequences : policy::kStateSequences) + policy::kCheckpointSlots;
  return prepare;
}

// Bytes that are read into memory or locked there are meant to stay; a second copy of them beside is not.
backend::PackOptions pack_options(const LoadOptions& options, const std::shared_ptr<model::Model>& model) {
  backend::PackOptions packs;
  if (!options.use_mmap || options.lock_memory || options.pack_directory.empty()) return packs;
  const format::WeightStore& weights = model->weights();
  packs.directory = options.pack_directory;
  packs.budget_bytes = options.pack_budget_bytes;
  packs.source = weights.source_digest();
  packs.model = model->name();
  for (const std::filesystem::path& file : weights.weight_files()) {
    if (auto source = backend::describe_source(file)) packs.files.push_back(std::move(*source));
  }
  packs.release = [model] { model->weights().release_all(); };
  packs.read = [model](const std::byte* at, std::span<std::byte> into) { return model->weights().read(at, into); };
  return packs;
}

const backend::Choice* chosen_chunk(const LoadOptions& options, const FoundProfile& found) {
  if (options.chunk != 0 || !found.profile) return nullptr;
  const auto* choice = backend::find_choice(found.profile->choices, backend::Regime::many, backend::Knob::chunk);
  return choice != nullptr && choice->value >= 1 && choice->value <= limits::kMaxBatchRows ? choice : nullptr;
}

LoadOptions with_profile(LoadOptions options, const FoundProfile& found) {
  if (const auto* choice = chosen_chunk(options, found); choice != nullptr) options.chunk = choice->value;
  return options;
}

std::string describe_chunk(const LoadOptions& options, const FoundProfile& found, int rows) {
  const std::string what = backend::describe(backend::Knob::chunk, rows);
  if (const auto* choice = chosen_chunk(options, found); choice != nullptr) {
    return fmt::format("profile: {}, {:.2f} times the built-in", what, choice->gain);
  }
  if (options.chunk > 0) return fmt::format("asked for: {}", what);
  return fmt::format("built-in: {} ({})", what,
                     rows == policy::kChunk ? "eight full tiles of the widest kernels" : "the whole context");
}

// The context that the memory allows, before anything is allocated. The weights are only mapped so far.
Result<std::int64_t> choose_context(const model::Model& model, const LoadOptions& options) {
  const std::int64_t wanted = model.plan().context_length;
  const backend::PrepareOptions prepare = prepare_options(options, model.plan());
  const MemoryNeed need = memory_need(backend::estimate_memory(model.plan(), prepare), prepare);
  const std::uint64_t available = available_memory();
  const bool automatic = options.context == 0;
  return fit_context(need, wanted, automatic, automatic ? with_headroom(available) : available);
}

// The model, with the context that fits; `found` gets its profile, which may want longer passes. Its first look at the
// file only maps it, so that a model that does not fit is refused before --no-mmap or --mlock would take the memory.
Result<std::shared_ptr<model::Model>> load_model(const std::filesystem::path& path, const LoadOptions& options,
                                                 FoundProfile& found) {
  model::ModelOptions how = model_options(options);
  ADZE_TRY(model::Model model, model::Model::load(path, how));
  ADZE_TRY(found, find_profile(options, model));
  ADZE_TRY(how.context, choose_context(model, with_profile(options, found)));
  if (how.context != model.plan().context_length || !options.use_mmap || options.lock_memory) {
    how.map = {.map = options.use_mmap, .lock = options.lock_memory};
    ADZE_TRY(model, model::Model::load(path, how));
  }
  return std::make_shared<model::Model>(std::move(model));
}

// Everything of model and settings that decides a bit of KV: what the plan was made of, and the kernels' numeric class.
Digest cache_root(const model::Model& model, const backend::Prepared& backend) {
  const ops::Plan& plan = model.plan();
  std::string key = fmt::format("kv 1;{};{};{};{}", to_hex(model.weights().source_digest()),
                                backend.schedule().numeric_class, backend::kPageTokens, plan.context_length);
  for (const ops::RopeSpec& rope : plan.ropes) {
    key += fmt::format(";{}", rope.magnitude);
    for (const float frequency : rope.inverse_frequency) key += fmt::format(",{}", frequency);
  }
  return digest(key);
}

GenerateOptions default_options(const model::GenerationDefaults& defaults) {
  GenerateOptions options;
  SamplingOptions& sampling = options.sampling;
  sampling.temperature = defaults.temperature.value_or(sampling.temperature);
  sampling.top_k = defaults.top_k.value_or(sampling.top_k);
  sampling.top_p = defaults.top_p.value_or(sampling.top_p);
  sampling.min_p = defaults.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = defaults.repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.penalty_window = defaults.penalty_window.value_or(sampling.penalty_window);
  return options;
}

ModelInfo describe(const model::Model& model, const backend::Prepared& backend, bool shrunk) {
  const backend::MemoryUse memory = backend.memory();
  ModelInfo info;
  info.name = model.name();
  info.architecture = model.hyperparameters().architecture;
  info.parameters = model.parameter_count();
  info.file_bytes = static_cast<std::int64_t>(model.weights().file_bytes());
  info.context = model.plan().context_length;
  info.trained_context = model.hyperparameters().context_length;
  info.layers = model.hyperparameters().layer_count();
  info.vocabulary = model.plan().vocabulary_size;
  info.numeric_class = backend.schedule().numeric_class;
  info.route_digest = to_hex(backend.schedule().route);
  info.kv_bytes_per_token = (memory.bytes_per_page + memory.bytes_per_sliding_page) / backend::kPageTokens;
  info.scratch_bytes = memory.scratch_bytes;
  info.weight_bytes = memory.weight_bytes;
  info.unused_tensors = model.weights().unused().size();
  info.notes = model.notes();
  if (shrunk) {
    info.notes.push_back(fmt::format("the context is {} tokens, not the model's {}: that is what fits into memory",
                                     info.context, info.trained_context));
  }
  return info;
}

// The template to chat with: the caller's, the model's, or ChatML where the vocabulary speaks it.
Status choose_template(const model::Model& model, const LoadOptions& options, CoreParts& parts) {
  std::optional<std::string> source = options.chat_template;
  if (!source) source = model.chat_template();
  if (source) {
    parts.info.has_chat_template = true;
    auto parsed = text::ChatTemplate::parse(std::move(*source));
    if (parsed) {
      parts.chat_template = std::move(*parsed);
      return {};
    }
    if (options.chat_template) return tl::unexpected(parsed.error());
    // Everything but chat works without it; start_conversation() reports it.
    parts.template_error = std::move(parsed.error());
    return {};
  }
  if (parts.tokenizer->token_to_id("<|im_start|>") && parts.tokenizer->token_to_id("<|im_end|>")) {
    parts.chat_template = text::fallback_chat_template();
    parts.info.notes.emplace_back(
        "the model has no chat template; ChatML is used, since its vocabulary has the tokens");
  }
  return {};
}

}  // namespace

int default_chunk() { return policy::kChunk; }

Result<Loaded> load_for_tuning(const std::filesystem::path& path, const LoadOptions& options) {
  ADZE_TRY_STATUS(check(options));
  Loaded loaded;
  FoundProfile unused;
  ADZE_TRY(loaded.model, load_model(path, options, unused));
  loaded.model->weights().release_headers();
  loaded.prepare = prepare_options(options, loaded.model->plan());
  loaded.prepare.packs = pack_options(options, loaded.model);
  return loaded;
}

Result<CoreParts> load_parts(const std::filesystem::path& path, const LoadOptions& options) {
  ADZE_TRY_STATUS(check(options));
  FoundProfile found;
  ADZE_TRY(const std::shared_ptr<model::Model> model, load_model(path, options, found));
  CoreParts parts;
  parts.model = model;
  parts.plan = &model->plan();
  ADZE_TRY(parts.tokenizer, model::load_tokenizer(model));
  if (parts.tokenizer->size() > model->plan().vocabulary_size) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("the vocabulary has {} tokens, but the embedding only {} rows", parts.tokenizer->size(),
                            model->plan().vocabulary_size),
                "the file was made by a broken converter: download or convert it again");
  }
  // The vocabulary was read once, merges and all; the few pieces that are printed later come back one page at a time.
  model->weights().release_headers();
  const std::int64_t context = model->plan().context_length;
  backend::PrepareOptions prepare = prepare_options(with_profile(options, found), model->plan());
  prepare.packs = pack_options(options, model);
  const backend::PrepareOptions draft_prepare = prepare_options(options, model->plan());
  if (found.profile) prepare.choices = open_choices(*found.profile, options);
  ADZE_TRY(parts.backend, backend::prepare(model->plan(), prepare));
  parts.max_batch_rows = prepare.max_batch_rows;
  parts.multiplies_bytes = prepare.compute == backend::Compute::automatic;
  const backend::MemoryUse memory = parts.backend->memory();
  if (memory.bytes_per_page > 0) parts.pages = static_cast<std::int32_t>(prepare.max_pages);
  parts.sliding_pages = static_cast<std::int32_t>(prepare.max_sliding_pages);
  parts.window = backend::sliding_window(model->plan());
  parts.root = cache_root(*model, *parts.backend);
  if (!model->plan().state_layers.empty()) {
    parts.slots = prepare.max_slots;
    parts.max_running = prepare.max_slots - policy::kCheckpointSlots;
  }
  ADZE_TRY(LoadedDrafter drafter, load_drafter(options,
                                               {.tokenizer = *parts.tokenizer,
                                                .vocabulary = model->plan().vocabulary_size,
                                                .context = context,
                                                .weight_bytes = memory.weight_bytes,
                                                .recurrent = parts.slots > 0,
                                                .sequences = parts.max_running},
                                               draft_prepare));
  parts.drafter = std::move(drafter.drafter);
  parts.draft_cost = drafter.draft_cost;
  parts.costs = cost_table(found.profile);
  const std::string speculation =
      fmt::format("{}; costs by {}", drafter.description, found.profile ? "the profile" : "the built-in table");
  parts.defaults = default_options(model->generation_defaults());
  parts.template_time = options.template_time;
  const bool shrunk = options.context == 0 && context < model->hyperparameters().context_length;
  parts.info = describe(*model, *parts.backend, shrunk);
  parts.info.profile = found.note;
  parts.info.speculation = speculation;
  parts.info.chunk = describe_chunk(options, found, parts.max_batch_rows);
  if (found.refused) parts.info.notes.push_back(found.note);
  ADZE_TRY_STATUS(choose_template(*model, options, parts));
  return parts;
}

}  // namespace adze::engine
