#include "cli/contract/command.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>

#include "backend/machine.hpp"
#include "base/limits.hpp"
#include "cli/bench/limits.hpp"
#include "cli/contract/report.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/models.hpp"
#include "cli/version.hpp"

namespace adze::cli::contract {
namespace {

constexpr int kPass = 0, kInfrastructure = 1, kBadContract = 2, kWrong = 3, kSlow = 4;

ExitCode code(int number) { return static_cast<ExitCode>(number); }

ExitCode complain(Context& context, const Error& error, int number) {
  context.console.error(error);
  return error.code == ErrorCode::cancelled ? ExitCode::interrupted : code(number);
}

Result<double> band_of(const Context& context) {
  const std::string text = context.arguments.value("band").value_or("0.1");
  char* end = nullptr;
  const double band = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(band >= 0 && band < 1)) {
    return fail(ErrorCode::invalid_argument, fmt::format("--band: '{}' is not a share from 0 to 1", text));
  }
  return band;
}

std::filesystem::path folder_for(const Context& context, const Contract& contract) {
  if (const auto out = context.arguments.value("out")) return *out;
  const std::string stem = fmt::format("contract-{}-{:%Y%m%d-%H%M%S}", contract.id, fmt::gmtime(std::time(nullptr)));
  std::filesystem::path folder = stem;
  std::error_code error;
  for (int i = 2; std::filesystem::exists(folder, error); ++i) folder = fmt::format("{}-{}", stem, i);
  return folder;
}

Result<ExitCode> run(Context& context, const Contract& contract) {
  const std::string model = context.arguments.value("model").value_or(contract.model);
  ADZE_TRY(const int rounds, parse_count("--rounds", context.arguments.value("rounds").value_or("3"), 2, 1000));
  ADZE_TRY(const double band, band_of(context));
  std::optional<Stored> baseline;
  if (const auto folder = context.arguments.value("baseline")) {
    ADZE_TRY(baseline, read_folder(*folder));
  }
  const std::filesystem::path folder = folder_for(context, contract);
  ADZE_TRY(const std::filesystem::path file, find_model(context, model));
  ADZE_TRY(const bench::Team team, bench::team_of(context));
  watch_interrupts();
  Environment environment{.version = std::string(version()),
                          .processor = backend::describe_machine().processor,
                          .kernel_set = team.kernel_set,
                          .model = model,
                          .model_file = file.filename().string(),
                          .threads = team.threads};
  RunOptions options{.rounds = rounds,
                     .load = [&]() -> Result<Engine> {
                       ADZE_TRY(Engine engine, load_engine_of(context, model, {}));
                       environment.file_bytes = engine.info().file_bytes;
                       environment.numeric_class = engine.info().numeric_class;
                       environment.route = engine.info().route_digest;
                       environment.speculation = engine.info().speculation;
                       return engine;
                     },
                     .interrupted = interrupted,
                     .progress = [&](double share) { context.console.progress("contract", share); }};
  // Before the work, so that no result is without a place; empty again where there is none.
  ADZE_TRY_STATUS(make_folder(folder));
  Result<Outcome> ran = run_contract(contract, options);
  context.console.end_progress();
  if (!ran) {
    std::error_code error;
    std::filesystem::remove(folder, error);
    return tl::unexpected(ran.error());
  }
  Outcome outcome = std::move(*ran);
  if (baseline) {
    const Stored now{.contract_id = contract.id,
                     .contract_digest = to_hex(contract.digest),
                     .model = environment.model,
                     .processor = environment.processor,
                     .correct = true,
                     .figures = figures_of(outcome)};
    ADZE_TRY_STATUS(check_comparable(*baseline, now));
    for (std::string& slow : worse(baseline->figures, now.figures, band)) outcome.slow.push_back(std::move(slow));
  }
  ADZE_TRY_STATUS(write_folder(folder, contract, outcome, environment));
  context.console.print(summary(contract, outcome, environment));
  context.console.note(fmt::format("written to {}", folder.string()));
  if (!outcome.correct()) return code(kWrong);
  return code(outcome.slow.empty() ? kPass : kSlow);
}

}  // namespace

ExitCode bench_contract(Context& context) {
  const auto name = context.arguments.positional(1);
  if (!name) {
    return complain(context,
                    {ErrorCode::invalid_argument, "adze bench contract needs a contract's FILE",
                     "bench/contracts has some; docs/bench-contracts.md has the format"},
                    kInfrastructure);
  }
  const Result<Contract> contract = read_contract(*name);
  if (!contract) {
    const bool bad = contract.error().code == ErrorCode::corrupt_file;
    return complain(context, contract.error(), bad ? kBadContract : kInfrastructure);
  }
  const Result<ExitCode> result = run(context, *contract);
  return result ? *result : complain(context, result.error(), kInfrastructure);
}

ExitCode bench_compare(Context& context) {
  const auto a = context.arguments.positional(1), b = context.arguments.positional(2);
  const auto compare = [&]() -> Result<ExitCode> {
    if (!a || !b) return fail(ErrorCode::invalid_argument, "adze bench compare needs two folders: BEFORE and NOW");
    ADZE_TRY(const double band, band_of(context));
    ADZE_TRY(const Stored before, read_folder(*a));
    ADZE_TRY(const Stored now, read_folder(*b));
    ADZE_TRY_STATUS(check_comparable(before, now));
    const auto line = [&](std::string_view what, double was, double is) {
      context.console.print(
          fmt::format("{:<22} {:>10.1f} {:>10.1f}  {:.2f} times\n", what, was, is, was > 0 ? is / was : 0));
    };
    line("first token, ms", before.figures.first_token_ms, now.figures.first_token_ms);
    line("prompts, tokens/s", before.figures.prompt_rate, now.figures.prompt_rate);
    line("decoding, tokens/s", before.figures.decode_rate, now.figures.decode_rate);
    line("without drafts", before.figures.plain_rate, now.figures.plain_rate);
    const std::vector<std::string> slower = worse(before.figures, now.figures, band);
    for (const std::string& slow : slower) context.console.note(fmt::format("slower: {}", slow));
    return code(slower.empty() ? kPass : kSlow);
  };
  const Result<ExitCode> result = compare();
  return result ? *result : complain(context, result.error(), kInfrastructure);
}

ExitCode bench_baseline(Context& context) {
  const auto from = context.arguments.positional(1), to = context.arguments.positional(2);
  const auto store = [&]() -> Status {
    if (!from || !to)
      return fail(ErrorCode::invalid_argument, "adze bench baseline needs a RESULT folder and a new name");
    ADZE_TRY(const Stored stored, read_folder(*from));
    if (!stored.correct) {
      return fail(ErrorCode::invalid_argument, "the run failed its contract, so it is no baseline");
    }
    return keep_as_baseline(*from, *to);
  };
  if (const Status status = store(); !status) return complain(context, status.error(), kInfrastructure);
  return code(kPass);
}

}  // namespace adze::cli::contract
