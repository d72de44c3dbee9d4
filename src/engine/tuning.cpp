#include "engine/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/machine.hpp"
#include "tune/report.hpp"
#include "tune/tuner.hpp"

namespace adze::engine {
namespace {

// Behind so many tokens at most a long context is measured; the rest is room for the passes.
constexpr std::int64_t kPositions = 4096 + 512;
// The longest passes that are tried for prompts.
constexpr int kLongestChunk = 512;
// Of the time, for the rates under another compute type.
constexpr double kShareOfOther = 0.1;

std::string build_name() { return fmt::format("{}, {}", ADZE_VERSION, __VERSION__); }

std::string numbers_of(const LoadOptions& options) {
  const char* kv = "f16";
  switch (options.kv_type) {
    case KvCacheType::automatic: kv = "auto"; break;
    case KvCacheType::f32: kv = "f32"; break;
    case KvCacheType::f16: kv = "f16"; break;
    case KvCacheType::q8_0: kv = "q8_0"; break;
  }
  return fmt::format("compute {}, kv {}", options.compute == ComputeType::f32 ? "f32" : "auto", kv);
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
                       .numeric_class = numbers_of(options)};
}

Result<FoundProfile> find_profile(const LoadOptions& options, const model::Model& model) {
  const bool named = !options.profile_file.empty();
  if (!named && options.profile_directory.empty()) return FoundProfile{.profile = {}, .note = "profile: off"};
  ADZE_TRY(const tune::Subject subject, subject_of(options, model));
  const std::filesystem::path path =
      named ? options.profile_file : tune::profile_path(options.profile_directory, subject);
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

}  // namespace adze::engine

namespace adze {

Result<TuneReport> tune_model(const std::filesystem::path& path, const LoadOptions& options, const TuneOptions& how) {
  const int chunk = engine::default_chunk();
  LoadOptions load = options;
  load.chunk = std::max(options.chunk, engine::kLongestChunk);
  ADZE_TRY(engine::Loaded loaded, engine::load_for_tuning(path, load));
  const ops::Plan& plan = loaded.model->plan();
  ADZE_TRY(tune::Subject subject, engine::subject_of(options, *loaded.model));
  const auto positions = static_cast<int>(std::min<std::int64_t>(engine::kPositions, plan.context_length));
  loaded.prepare.max_pages = (positions + backend::kPageTokens - 1) / backend::kPageTokens;
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
                              .progress = how.progress};
  ADZE_TRY(tune::Measured measured, tune::measure_profile(*prepared, plan, setup));
  measured.profile.subject = std::move(subject);
  measured.profile.model = loaded.model->name();
  ADZE_TRY(const tune::OtherCompute other, engine::compare_compute(*prepared, plan, loaded.prepare, setup));

  TuneReport report;
  report.path = options.profile_file.empty() ? tune::profile_path(options.profile_directory, measured.profile.subject)
                                             : options.profile_file;
  report.text = tune::report_text(measured, other);
  report.json = tune::report_json(measured, other);
  ADZE_TRY_STATUS(tune::write_profile(report.path, measured.profile));
  return report;
}

}  // namespace adze
