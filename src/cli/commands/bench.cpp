// `bench model`: the truth line of a model on this machine. `bench kernels` hands over to the Google Benchmark binary.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "backend/machine.hpp"
#include "base/limits.hpp"
#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"WHAT", "model or kernels"},
    {"MODEL", "For model: a model file, or the name of a pulled model. For kernels: flags of Google Benchmark after --",
     false, true},
};
constexpr Option kOptions[] = {
    {"--prompt-tokens", "N", "Tokens of the prompt whose rate is measured (default 512)", ""},
    {"--generate-tokens", "N", "Tokens generated one by one (default 128)", ""},
    {"--depth", "N", "Tokens in the context before the generated ones (default 0, that is one)", ""},
    {"-r,--rounds", "N", "Measured rounds after one to warm up (default 5)", ""},
    {"--json", "", "Print one JSON object with every round", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::hub, SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze bench model smollm2 --threads 2", "Prompt and generation rates, median of five rounds"},
    {"adze bench kernels -- --benchmark_filter=q4_1", "Micro-benchmarks of the kernels"},
};

struct Plan {
  std::int64_t prompt = 512;
  std::int64_t generate = 128;
  std::int64_t depth = 0;
  std::int64_t rounds = 5;
};

Result<Plan> read_plan(const Context& context) {
  Plan plan;
  const auto read = [&](std::string_view option, std::int64_t& target, int least) -> Status {
    const auto text = context.arguments.value(option);
    if (!text) return {};
    ADZE_TRY(target, parse_count(fmt::format("--{}", option), *text, least, limits::kMaxCommandCount));
    return {};
  };
  ADZE_TRY_STATUS(read("prompt-tokens", plan.prompt, 1));
  ADZE_TRY_STATUS(read("generate-tokens", plan.generate, 1));
  ADZE_TRY_STATUS(read("depth", plan.depth, 0));
  ADZE_TRY_STATUS(read("rounds", plan.rounds, 1));
  return plan;
}

struct Spread {
  double least = 0, median = 0, most = 0;
};
Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {values.front(), values[values.size() / 2], values.back()};
}

// Bytes per second that all threads together read from memory: the ceiling of generation, where every weight is read
// once per token. 256 MiB, far beyond the caches of a desktop; the best of five passes.
double read_bandwidth(int threads) {
  constexpr std::size_t kBytes = 256u << 20;
  constexpr std::size_t kWords = kBytes / sizeof(std::uint64_t);
  const auto words = std::make_unique<std::uint64_t[]>(kWords);
  std::memset(words.get(), 1, kBytes);
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const double begin = now_seconds();
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        const std::size_t share = kWords / static_cast<std::size_t>(threads);
        const std::uint64_t* at = words.get() + static_cast<std::size_t>(t) * share;
        std::uint64_t sums[8] = {};
        for (std::size_t i = 0; i + 8 <= share; i += 8) {
          for (std::size_t k = 0; k < 8; ++k) sums[k] += at[i + k];
        }
        std::uint64_t sum = 0;
        for (const std::uint64_t s : sums) sum += s;
        sink += sum;
      });
    }
    for (std::thread& thread : team) thread.join();
    best = std::max(best, static_cast<double>(kBytes) / (now_seconds() - begin));
  }
  return best;
}

// Token ids that exercise the whole embedding table and never end an answer early: a fixed sequence, no randomness.
std::vector<std::int32_t> synthetic_prompt(std::int64_t tokens, int vocabulary) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  std::uint32_t state = 1;
  for (std::int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocabulary));
  }
  return ids;
}

struct Measured {
  std::vector<double> prompt_rates, generate_rates;  // tokens per second
  std::string logits_hash;
};

Result<Measured> measure(Context& context, Engine& engine, const Plan& plan) {
  const int vocabulary = engine.info().vocabulary;
  const std::vector<std::int32_t> prompt = synthetic_prompt(plan.prompt, vocabulary);
  const std::vector<std::int32_t> start = synthetic_prompt(std::max<std::int64_t>(plan.depth, 1), vocabulary);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = plan.generate;
  options.ignore_eos = true;
  options.cancelled = interrupted;
  Measured measured;
  for (std::int64_t round = 0; round <= plan.rounds; ++round) {
    const double begin = now_seconds();
    ADZE_TRY_STATUS(engine.evaluate(
        prompt, [&](std::int64_t position) { return position == plan.prompt - 1; },
        [](std::int64_t, std::span<const float>) {}));
    const double prompt_seconds = now_seconds() - begin;
    options.hash_logits = round == 0;  // the hash costs a pass over the logits: outside the measured rounds
    ADZE_TRY(const Generation generation, engine.generate(start, options, {}));
    if (interrupted()) return fail(ErrorCode::cancelled, "stopped");
    context.console.progress("bench", static_cast<std::uint64_t>(round + 1),
                             static_cast<std::uint64_t>(plan.rounds + 1));
    if (round == 0) {
      measured.logits_hash = generation.logits_hash;
      continue;
    }
    measured.prompt_rates.push_back(static_cast<double>(plan.prompt) / prompt_seconds);
    measured.generate_rates.push_back(generation.statistics.generate_rate());
  }
  context.console.end_progress();
  return measured;
}

std::string as_json(const Engine& engine, const Plan& plan, const Measured& measured, double bandwidth, int threads,
                    std::uint64_t peak) {
  const ModelInfo& info = engine.info();
  JsonWriter json;
  json.begin_object()
      .field("model", info.name)
      .field("architecture", info.architecture)
      .field("parameters", info.parameters)
      .field("file_bytes", info.file_bytes)
      .field("weight_bytes", info.weight_bytes)
      .field("packed_bytes", engine.packs().state == PackState::ready ? engine.packs().total_bytes : 0)
      .field("threads", threads)
      .field("numeric_class", info.numeric_class)
      .field("route_digest", info.route_digest)
      .field("logits_hash", measured.logits_hash)
      .field("prompt_tokens", plan.prompt)
      .field("generate_tokens", plan.generate)
      .field("depth", plan.depth)
      .list("prompt_tokens_per_second", measured.prompt_rates)
      .list("generate_tokens_per_second", measured.generate_rates)
      .field("read_bandwidth_bytes_per_second", bandwidth)
      .field("peak_memory_bytes", peak)
      .end_object();
  return json.take();
}

std::string as_text(const Engine& engine, const Plan& plan, const Measured& measured, double bandwidth, int threads) {
  const ModelInfo& info = engine.info();
  const Spread prompt = spread_of(measured.prompt_rates);
  const Spread generate = spread_of(measured.generate_rates);
  const double bytes_per_second = generate.median * static_cast<double>(info.weight_bytes);
  return fmt::format(
      "{}, {} threads, {}\n"
      "prompt    {:>6} tokens  {:>9.1f} tokens/s  (min {:.1f}, max {:.1f}, {} rounds)\n"
      "generate  {:>6} tokens  {:>9.1f} tokens/s  (min {:.1f}, max {:.1f}; {:.2f} ms per token, {:.1f} GB/s of weights "
      "= "
      "{:.0f} % of {:.1f} GB/s read here)\n"
      "logits {}  route {}\n",
      info.name, threads, info.numeric_class, plan.prompt, prompt.median, prompt.least, prompt.most, plan.rounds,
      plan.generate, generate.median, generate.least, generate.most, 1e3 / generate.median, bytes_per_second / 1e9,
      100 * bytes_per_second / bandwidth, bandwidth / 1e9, measured.logits_hash, info.route_digest);
}

Result<ExitCode> bench_model(Context& context) {
  const auto name = context.arguments.positional(1);
  if (!name) return fail(ErrorCode::invalid_argument, "adze bench model needs MODEL", "Name a model; see adze list.");
  ADZE_TRY(const Plan plan, read_plan(context));
  ADZE_TRY(Engine engine, load_engine_of(context, *name));
  watch_interrupts();
  wait_for_packs(context, engine);
  ADZE_TRY(const Measured measured, measure(context, engine, plan));
  const int threads = context.settings().threads > 0 ? static_cast<int>(context.settings().threads)
                                                     : backend::describe_machine().threads;
  const std::uint64_t peak = peak_memory_bytes();
  const double bandwidth = read_bandwidth(threads);
  context.console.print(context.arguments.has("json") ? as_json(engine, plan, measured, bandwidth, threads, peak)
                                                      : as_text(engine, plan, measured, bandwidth, threads));
  context.console.note(fmt::format("peak memory {}", format_bytes(peak)));
  return ExitCode::ok;
}

// The benchmark binary stands beside the program in a build, and is not installed.
Result<ExitCode> bench_kernels(const Context& context) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = self.parent_path() / "adze-bench-kernels";
  if (error || !std::filesystem::exists(program)) {
    return fail(ErrorCode::not_found, "the kernel benchmarks were not built",
                "Build with -DADZE_BENCH=ON, as ./dev bench does.");
  }
  std::vector<std::string> words{program.string()};
  for (std::size_t i = 1; context.arguments.positional(i); ++i) words.push_back(*context.arguments.positional(i));
  if (context.arguments.has("json")) words.emplace_back("--benchmark_format=json");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return fail(ErrorCode::io, fmt::format("cannot run '{}': {}", program.string(), std::strerror(errno)));
}

Result<ExitCode> run_bench(Context& context) {
  const std::string what = *context.arguments.positional(0);
  if (what == "model") return bench_model(context);
  if (what == "kernels") return bench_kernels(context);
  return fail(ErrorCode::invalid_argument, fmt::format("there is no benchmark '{}'", what), "It is model or kernels.");
}

}  // namespace

constinit const Command kBench{.name = "bench",
                               .summary = "Measure a model, or the kernels",
                               .description = {},
                               .positionals = kPositionals,
                               .options = kOptions,
                               .settings = kSettings,
                               .examples = kExamples,
                               .run = run_bench};

}  // namespace adze::cli
