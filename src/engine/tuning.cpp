#include "engine/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/machine.hpp"
#include "tune/report.hpp"
#include "tune/tuner.hpp"
#include "tune/workload.hpp"

namespace adze::engine {
namespace {

// The deepest of the contexts that are measured, and room for the passes.
constexpr std::int64_t kPositions = tune::kLongestContext + tune::Workload::kRoom;
// Of the time, for the rates under another compute type.
constexpr double kShareOfOther = 0.1;

std::string build_name() { return fmt::format("{}, {}", ADZE_VERSION, __VERSION__); }

// The settings that decide which kernels run, and on how many threads.
std::string settings_of(const LoadOptions& options) {
  const bool f32 = options.compute == ComputeType::f32;
  const auto kv = [&] {
    switch (options.kv_type) {
      case KvCacheType::automatic: return f32 ? "f32" : "f16";
      case KvCacheType::f32: return "f32";
      case KvCacheType::f16: return "f16";
      case KvCacheType::q8_0: return "q8_0";
    }
    return "";
  };
  const std::string threads = options.threads == 0 ? "auto" : fmt::format("{}", options.threads);
  return fmt::format("compute {}, kv {}, threads {}", f32 ? "f32" : "auto", kv(), threads);
}

// Rates of both ways to compute, in turns.
Result<tune::OtherCompute> compare_compute(backend::Prepared& own, const ops::Plan& plan,
                                           backend::PrepareOptions prepare, const tune::TuneSetup& setup) {
  tune::OtherCompute other{.name = "f32", .own = {}, .other = {}};
  if (prepare.compute == backend::Compute::f32) return other;
  prepare.compute = backend::Compute::f32;
  prepare.packs = {};  // nothing that is multiplied with floats is packed, but floats
  ADZE_TRY(const std::unique_ptr<backend::Prepared> floats, backend::prepare(plan, prepare));
  tune::TuneSetup part = setup;
  part.seconds = setup.seconds * kShareOfOther / 4;
  std::vector<double> own_generate, own_prompt, other_generate, other_prompt;
  for (int round = 0; round < 2; ++round) {
    ADZE_TRY(const tune::Rates a, tune::measure_rates(own, plan, part));
    ADZE_TRY(const tune::Rates b, tune::measure_rates(*floats, plan, part));
    own_generate.push_back(a.generate);
    own_prompt.push_back(a.prompt);
    other_generate.push_back(b.generate);
    other_prompt.push_back(b.prompt);
  }
  other.own = {tune::median(own_generate), tune::median(own_prompt)};
  other.other = {tune::median(other_generate), tune::median(other_prompt)};
  return other;
}

}  // namespace

Result<tune::Subject> subject_of(const LoadOptions& options, const model::Model& model) {
  ADZE_TRY(std::string kernel_set, backend::choose_kernel_set(options.kernel_set));
  backend::Machine machine = backend::describe_machine();
  return tune::Subject{.processor = std::move(machine.processor),
                       .kernel_set = std::move(kernel_set),
                       .cpus = machine.usable_cpus,
                       .build = build_name(),
                       .weights = to_hex(model.weights().source_digest()),
                       .settings = settings_of(options)};
}

Result<FoundProfile> find_profile(const LoadOptions& options, const model::Model& model) {
  const bool named = !options.profile_file.empty();
  if (!named && options.profile_directory.empty()) return FoundProfile{.profile = {}, .note = "profile: off"};
  ADZE_TRY(const tune::Subject subject, subject_of(options, model));
  const std::filesystem::path path =
      named ? options.profile_file : tune::profile_path(options.profile_directory, subject);
  std::error_code ignored;
  if (!named && std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return FoundProfile{.profile = {}, .note = fmt::format("profile: not used, '{}' is not a file", path.string())};
  }
  auto read = tune::read_profile(path, subject);
  if (read) return FoundProfile{.profile = std::move(*read), .note = fmt::format("profile: {}", path.string())};
  const bool foreign = read.error().code == ErrorCode::unsupported_feature;
  if (named && !foreign) return tl::unexpected(std::move(read.error()));
  if (read.error().code == ErrorCode::not_found)
    return FoundProfile{.profile = {}, .note = "profile: none (adze tune)"};
  return FoundProfile{
      .profile = {}, .note = fmt::format("profile: not used, {}", read.error().message), .refused = named};
}

std::vector<backend::Choice> open_choices(const tune::Profile& profile, const LoadOptions& options) {
  std::vector<backend::Choice> choices = profile.choices;
  if (options.threads != 0) std::erase_if(choices, [](const auto& c) { return c.knob == backend::Knob::threads; });
  return choices;
}

speculate::CostTable cost_table(const std::optional<tune::Profile>& profile) {
  if (!profile) return speculate::CostTable::built_in();
  std::vector<speculate::CostPoint> points;
  for (const tune::Cost& cost : profile->costs) {
    points.push_back({.rows = cost.rows, .near = cost.short_ms, .far = cost.long_ms});
  }
  return speculate::CostTable::from_points(points, profile->long_context);
}

}  // namespace adze::engine

namespace adze {

Result<TuneReport> tune_model(const std::filesystem::path& path, const LoadOptions& options, const TuneOptions& how) {
  const int chunk = engine::default_chunk();
  LoadOptions load = options;
  load.chunk = std::max(options.chunk, tune::kLongestChunk);
  ADZE_TRY(engine::Loaded loaded, engine::load_for_tuning(path, load));
  const ops::Plan& plan = loaded.model->plan();
  ADZE_TRY(tune::Subject subject, engine::subject_of(options, *loaded.model));
  const auto positions = static_cast<int>(std::min<std::int64_t>(engine::kPositions, plan.context_length));
  loaded.prepare.max_pages = loaded.prepare.max_sliding_pages = backend::pages_for(positions);
  loaded.prepare.max_batch_rows = std::min(loaded.prepare.max_batch_rows, positions);
  ADZE_TRY(const std::unique_ptr<backend::Prepared> prepared, backend::prepare(plan, loaded.prepare));

  // What is measured is what will run.
  bool go_on = true;
  prepared->wait_for_packs([&](std::uint64_t done, std::uint64_t total) {
    if (how.packing) go_on = how.packing(done, total);
    return go_on;
  });
  if (!go_on) return fail(ErrorCode::cancelled, "stopped");

  const tune::TuneSetup setup{.positions = positions,
                              .max_rows = loaded.prepare.max_batch_rows,
                              .chunk = std::min({options.chunk > 0 ? options.chunk : chunk, positions}),
                              .seconds = how.seconds,
                              .choose_threads = options.threads == 0,
                              .choose_chunk = options.chunk == 0,
                              .progress = how.progress};
  ADZE_TRY(tune::Measured measured, tune::measure_profile(*prepared, plan, setup));
  measured.profile.subject = std::move(subject);
  measured.profile.model = loaded.model->name();
  ADZE_TRY(const tune::OtherCompute other, engine::compare_compute(*prepared, plan, loaded.prepare, setup));

  TuneReport report;
  const bool named = !options.profile_file.empty();
  report.path = named ? options.profile_file : tune::profile_path(options.profile_directory, measured.profile.subject);
  report.text = tune::report_text(measured, other);
  report.json = tune::report_json(measured, other);
  ADZE_TRY_STATUS(tune::write_profile(report.path, measured.profile,
                                      named ? AtomicFile::Replace::file : AtomicFile::Replace::name));
  return report;
}

}  // namespace adze
