#include "cli/engine_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "backend/machine.hpp"
#include "base/file.hpp"
#include "base/limits.hpp"
#include "cli/bench/limits.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"
#include "cli/utf8.hpp"

namespace adze::cli {
namespace {

// The whole text as one number; nothing where it is not one.
template <class Number>
std::optional<Number> to_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

KvCacheType kv_type_of(const std::string& name) {
  if (name == "f32") return KvCacheType::f32;
  if (name == "f16") return KvCacheType::f16;
  if (name == "q8_0") return KvCacheType::q8_0;
  return KvCacheType::automatic;
}

std::optional<float> narrow(const std::optional<double>& value) {
  if (!value) return std::nullopt;
  return static_cast<float>(*value);
}

// What the rates are of this machine's limit, measured now: "prompt 212.4 GMAC/s = 30 % of 705.1 GMAC/s; generation
// ...".
std::string truth_line(const Context& context, const Engine& engine, const Statistics& s) {
  const Result<bench::Team> team = bench::team_of(context);
  if (!team) return team.error().message;
  bench::Limits limits(team->kernel_set, team->threads);
  const ForwardWork step = engine.forward_work(1, 1, 1, s.reused_tokens + s.prompt_tokens + s.generated_tokens / 2);
  const std::uint64_t working_set = bench::working_set_of(engine, step);
  if (const Status measured = limits.measure(working_set); !measured) return measured.error().message;
  std::string line = "of this machine's limit: ";
  if (s.prompt_tokens > 0 && s.prompt_seconds > 0) {
    const ForwardWork prompt = engine.forward_work(s.prompt_tokens, 1, 1, s.reused_tokens);
    line += fmt::format("prompt {}", limits.bound(prompt, working_set).share_text(s.prompt_seconds));
  }
  if (s.generated_tokens > 1) {
    line += fmt::format("{}generation {}", line.ends_with(' ') ? "" : "; ",
                        limits.bound(step, working_set).share_text(1 / s.generate_rate()));
  }
  return line;
}

template <class Target, class Value>
void override_with(Target& target, const std::optional<Value>& value) {
  if (value) target = static_cast<Target>(*value);
}

// How long a process that nobody watches may last because of packing, whatever it took before; and when it is known how
// fast packing goes.
constexpr double kLeastPatienceSeconds = 1.0, kEstimateSeconds = 0.1;

}  // namespace

LoadOptions load_options(const Settings& settings, const EngineNeeds& needs) {
  LoadOptions options;
  options.threads = static_cast<int>(settings.threads);
  options.context = settings.context > 0 ? settings.context : needs.positions;
  options.sequences = needs.sequences;
  options.compute = settings.compute == "f32" ? ComputeType::f32 : ComputeType::automatic;
  options.kv_type = kv_type_of(settings.kv_type);
  options.kernel_set = kernel_set_of(settings);
  options.use_mmap = settings.mmap;
  options.lock_memory = settings.mlock;
  options.chunk = static_cast<int>(settings.chunk);
  options.concurrent = settings.concurrent;
  options.rope.scaling = settings.rope_scaling;
  options.rope.frequency_base = narrow(settings.rope_base);
  options.rope.scaling_factor = narrow(settings.rope_factor);
  options.rope.original_context = settings.rope_original_context;
  options.chat_template = needs.chat_template;
  if (settings.speculation == "off") options.speculation = Speculation::off;
  if (settings.speculation == "draft" || (settings.speculation == "auto" && !settings.draft_model.empty())) {
    options.speculation = Speculation::draft;
  }
  if (settings.packs == "auto") options.pack_directory = pack_directory(settings);
  options.pack_budget_bytes = static_cast<std::uint64_t>(settings.pack_budget * 1e9);
  if (settings.profile == "auto") {
    options.profile_directory = profile_directory(settings);
  } else if (settings.profile != "off") {
    options.profile_file = settings.profile;
  }
  return options;
}

Result<Engine> load_engine(const Context& context, const std::optional<std::string>& chat_template) {
  return load_engine_of(context, *context.arguments.positional(0), {.chat_template = chat_template});
}

Result<Engine> load_engine_of(const Context& context, const std::string& model, const EngineNeeds& needs) {
  ADZE_TRY(const std::filesystem::path path, find_model(context, model));
  LoadOptions options = load_options(context.settings(), needs);
  if (options.speculation == Speculation::draft) {
    if (context.settings().draft_model.empty()) {
      return fail(ErrorCode::invalid_argument, "--spec draft: there is no draft model", "Name one with --draft MODEL.");
    }
    ADZE_TRY(options.draft_model, find_model(context, context.settings().draft_model));
  }
  ADZE_TRY(Engine engine, Engine::load(path, options));
  for (const std::string& note : engine.info().notes) context.console.note(fmt::format("note: {}", note));
  return engine;
}

std::string kernel_set_of(const Settings& settings) { return settings.cpu == "auto" ? std::string() : settings.cpu; }

Result<GenerateOptions> generate_options(const Engine& engine, const Settings& settings) {
  GenerateOptions options = engine.default_options();
  SamplingOptions& sampling = options.sampling;
  override_with(sampling.temperature, settings.temperature);
  override_with(sampling.top_k, settings.top_k);
  override_with(sampling.top_p, settings.top_p);
  override_with(sampling.min_p, settings.min_p);
  override_with(sampling.typical_p, settings.typical_p);
  override_with(sampling.repetition_penalty, settings.repetition_penalty);
  override_with(sampling.presence_penalty, settings.presence_penalty);
  override_with(sampling.frequency_penalty, settings.frequency_penalty);
  sampling.penalty_window = static_cast<int>(settings.penalty_window);
  sampling.dry_multiplier = static_cast<float>(settings.dry_multiplier);
  sampling.dry_base = static_cast<float>(settings.dry_base);
  sampling.dry_allowed_length = static_cast<int>(settings.dry_allowed_length);
  sampling.dry_window = static_cast<int>(settings.dry_window);
  if (!settings.dry_breakers.empty()) sampling.dry_sequence_breakers = settings.dry_breakers;
  if (settings.seed) sampling.seed = static_cast<std::uint64_t>(*settings.seed);
  const int vocabulary = engine.info().vocabulary;
  for (const std::string& text : settings.logit_bias) {
    const auto equals = text.find('=');
    const auto id = to_number<std::int32_t>(std::string_view(text).substr(0, equals));
    const auto bias =
        equals == std::string::npos ? std::nullopt : to_number<float>(std::string_view(text).substr(equals + 1));
    if (!id || !bias || *id < 0 || *id >= vocabulary || !(*bias >= -100 && *bias <= 100)) {
      return fail(ErrorCode::invalid_argument, fmt::format("--logit-bias: '{}' is not a token id and a bias", text),
                  fmt::format("Write ID=BIAS with an id from 0 to {} and a bias from -100 to 100.", vocabulary - 1));
    }
    sampling.logit_bias.emplace_back(*id, *bias);
  }
  override_with(options.max_tokens, settings.max_tokens);
  options.stop = settings.stop;
  const std::pair<const std::vector<std::string>*, std::vector<std::int32_t>*> lists[] = {
      {&settings.stop_ids, &options.stop_ids},
      {&settings.allowed_ids, &options.allowed_ids},
      {&settings.banned_ids, &options.banned_ids}};
  for (const auto& [texts, all] : lists) {
    for (const std::string& text : *texts) {
      ADZE_TRY(const std::vector<std::int32_t> ids, parse_ids(text, vocabulary));
      all->insert(all->end(), ids.begin(), ids.end());
    }
  }
  override_with(options.top_logprobs, settings.top_logprobs);
  options.ignore_eos = settings.ignore_eos;
  options.cancelled = interrupted;
  return options;
}

Result<std::string> required_positional(const Context& context, std::size_t index) {
  if (auto word = context.arguments.positional(index)) return std::move(*word);
  return fail(ErrorCode::invalid_argument, fmt::format("{} is missing", context.command.positionals[index].name),
              fmt::format("Try 'adze {} --help'.", context.command.name));
}

Result<int> thread_count(const Context& context) {
  std::int64_t threads = context.settings().threads;
  if (const auto text = context.arguments.value("threads")) {
    ADZE_TRY(threads, parse_count("--threads", *text, 0, limits::kMaxThreads));
  }
  return threads == 0 ? backend::describe_machine().threads : static_cast<int>(threads);
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view text, int vocabulary) {
  std::vector<std::int32_t> ids;
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  const auto trim = [](std::string_view word) {
    const auto first = word.find_first_not_of(" \n");
    return first == word.npos ? std::string_view() : word.substr(first, word.find_last_not_of(" \n") - first + 1);
  };
  text = trim(text);
  const std::string_view separators = text.find(',') == text.npos ? " \n" : ",";
  while (!text.empty()) {
    const auto end = text.find_first_of(separators);
    const std::string_view word = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (word.empty() && separators != ",") continue;
    const auto id = to_number<std::int32_t>(word);
    if (!id || *id < 0 || *id >= vocabulary) {
      return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not a token id", word),
                  fmt::format("Ids are whole numbers from 0 to {}, with commas between them.", vocabulary - 1));
    }
    ids.push_back(*id);
  }
  return ids;
}

Result<std::optional<std::string>> prompt_text(const Context& context, std::size_t first) {
  std::optional<std::string> words = context.arguments.rest(first);
  const std::optional<std::string> file = context.arguments.value("file");
  if (words == "-" || (!words && !file && !context.console.stdin_is_terminal())) {
    ADZE_TRY(words, read_stdin_text());
  }
  if (words) {
    if (const auto bad = first_bad_utf8(*words)) {
      return fail(ErrorCode::invalid_argument, fmt::format("the prompt is not UTF-8 at byte {}", *bad),
                  "Use a terminal with a UTF-8 locale.");
    }
  }
  if (!file) return words;
  ADZE_TRY(std::string text, read_file(*file, limits::kMaxPromptBytes));
  if (const auto bad = first_bad_utf8(text)) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not UTF-8 at byte {}", *file, *bad),
                "Convert it first, for example with iconv -t UTF-8.");
  }
  return words ? fmt::format("{}\n\n{}", *words, text) : text;
}

bool ended_by_context(const Generation& generation, const GenerateOptions& options) {
  return generation.finish == FinishReason::length &&
         (options.max_tokens < 0 || generation.statistics.generated_tokens < options.max_tokens);
}

void print_statistics(const Context& context, const Engine& engine, const Generation& generation) {
  const Statistics& s = generation.statistics;
  std::string line = fmt::format("prompt {} tokens, {:.1f} tokens/s", s.prompt_tokens, s.prompt_rate());
  if (s.reused_tokens > 0) line += fmt::format(" ({} more reused)", s.reused_tokens);
  line += fmt::format("; generated {} token{}", s.generated_tokens, s.generated_tokens == 1 ? "" : "s");
  // The first token comes out of the prompt's last row: one alone has no rate.
  if (s.generated_tokens > 1) line += fmt::format(", {:.1f} tokens/s", s.generate_rate());
  line += fmt::format("; first token {:.0f} ms; peak memory {}", s.first_token_seconds * 1e3,
                      format_bytes(peak_memory_bytes()));
  context.console.note(line);
  if (!context.settings().verbose) return;
  context.console.note(fmt::format("seed {}", generation.seed));
  if (s.drafted_tokens > 0) {
    context.console.note(fmt::format("drafts: {} of {} tokens accepted, {:.2f} tokens per pass", s.accepted_tokens,
                                     s.drafted_tokens,
                                     static_cast<double>(s.generated_tokens) / static_cast<double>(s.forwards)));
  }
  context.console.note(truth_line(context, engine, s));
}

void print_verbose(Console& console, const Engine& engine, const GenerateOptions& options) {
  const ModelInfo& info = engine.info();
  console.note(fmt::format("{}: {}, {} layers, {} parameters, context {} of {}", info.name, info.architecture,
                           info.layers, info.parameters, info.context, info.trained_context));
  console.note(fmt::format("numbers {}; route {}", info.numeric_class, info.route_digest));
  console.note(describe_packs(engine.packs()));
  console.note(info.profile);
  console.note(info.speculation);
  console.note(fmt::format("samplers {}", describe_sampling(options.sampling)));
}

std::string describe_packs(const PackInfo& packs) {
  switch (packs.state) {
    case PackState::off: return "packed weights: none";
    case PackState::packing:
      return fmt::format("packed weights: {} in the making, {}", format_bytes(packs.total_bytes), packs.path.string());
    case PackState::ready:
      return fmt::format("packed weights: {}{}, {}", format_bytes(packs.total_bytes),
                         packs.found ? "" : " made just now", packs.path.string());
    case PackState::failed: return fmt::format("packed weights: none, {}", packs.error->message);
  }
  return {};
}

bool show_packing(Console& console, std::uint64_t done, std::uint64_t total) {
  console.progress("packing weights, once", done, total);
  return !interrupted();
}

void wait_for_packs(const Context& context, Engine& engine) {
  engine.finish_packs(
      [&](std::uint64_t done, std::uint64_t total) { return show_packing(context.console, done, total); });
  context.console.end_progress();
}

void finish_packs(const Context& context, Engine& engine) {
  context.console.flush();
  if (engine.packs().state == PackState::packing) {
    // A process that ends now has packed in vain, and so has the next one that is as short. Somebody who watches can
    // see why it takes a moment, and end it; a script pays once, and no more than what it has already taken, for runs
    // that are faster from then on.
    const bool watched = context.console.stderr_is_terminal() && !context.console.quiet();
    const double begun = now_seconds();
    const double patience = std::max(kLeastPatienceSeconds, begun - context.started_seconds);
    const std::uint64_t before = engine.packs().done_bytes;
    engine.finish_packs([&](std::uint64_t done, std::uint64_t total) {
      if (watched || interrupted()) return show_packing(context.console, done, total);
      const double spent = now_seconds() - begun;
      if (done <= before || spent < kEstimateSeconds) return spent < kLeastPatienceSeconds;
      const double rate = static_cast<double>(done - before) / spent;
      return spent + static_cast<double>(total - done) / rate < patience;
    });
    context.console.end_progress();
  }
  const PackInfo packs = engine.packs();
  const bool news = packs.state == PackState::failed || (packs.state == PackState::ready && !packs.found);
  if (context.settings().verbose && news) context.console.note(describe_packs(packs));
}

void write_generation(JsonWriter& json, const Generation& generation) {
  const Statistics& s = generation.statistics;
  json.list("ids", generation.ids)
      .field("text", generation.text)
      .field("finish", finish_reason_name(generation.finish))
      .field("seed", generation.seed);
  if (!generation.stop_match.empty()) json.field("stop", generation.stop_match);
  if (!generation.logits_hash.empty()) json.field("logits_hash", generation.logits_hash);
  if (!generation.logprobs.empty()) {
    json.key("logprobs").begin_array();
    for (const TokenLogprobs& token : generation.logprobs) {
      json.begin_object().field("id", token.drawn.id).field("logprob", token.drawn.logprob).key("top").begin_array();
      for (const TokenLogprob& best : token.top) {
        json.begin_object().field("id", best.id).field("logprob", best.logprob).end_object();
      }
      json.end_array().end_object();
    }
    json.end_array();
  }
  json.key("timings")
      .begin_object()
      .field("prompt_tokens", s.prompt_tokens)
      .field("reused_tokens", s.reused_tokens)
      .field("not_reused", s.not_reused)
      .field("generated_tokens", s.generated_tokens)
      .field("drafted_tokens", s.drafted_tokens)
      .field("accepted_tokens", s.accepted_tokens)
      .field("forwards", s.forwards)
      .field("prompt_seconds", s.prompt_seconds)
      .field("generate_seconds", s.generate_seconds)
      .field("first_token_seconds", s.first_token_seconds)
      .field("peak_memory_bytes", peak_memory_bytes())
      .end_object();
}

Thinking thinking_of(const Settings& settings) {
  if (settings.thinking == "on") return Thinking::on;
  if (settings.thinking == "off") return Thinking::off;
  return Thinking::model_default;
}

}  // namespace adze::cli
