// Rates beside the machine's limits, which are measured in the same run, and beside a peer.
#include <fmt/format.h>

#include "cli/bench/kernels.hpp"
#include "cli/bench/model.hpp"
#include "cli/commands/all.hpp"
#include "cli/context.hpp"
#include "cli/contract/command.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"WHAT", "model, kernels, limits, contract, compare or baseline"},
    {"NAME",
     "For model: a model file, or the name of a pulled model. For kernels: weight types (Q4_0 ...), attention. For "
     "contract: its file. For compare: two result folders. For baseline: a result folder and a new name",
     false, true},
};
constexpr Option kOptions[] = {
    {"--prompt-tokens", "LIST", "model: lengths of prompts whose rate is measured (default 512; 0: none)", ""},
    {"--generate-tokens", "LIST", "model: tokens generated one by one (default 128; 0: none)", ""},
    {"--depth", "LIST", "model: tokens in the context before the generated ones (default 0, that is one)", ""},
    {"--batch", "LIST", "model: texts that are generated side by side (default 1)", ""},
    {"-r,--rounds", "N", "model: measured rounds after one to warm up (default 5)", ""},
    {"--peer", "LLAMA-BENCH", "model: llama.cpp's llama-bench, run in turn with Adze; prints a table of both", ""},
    {"--rows", "LIST", "kernels: rows of activations (default 1,2,4,8,12,16,64)", ""},
    {"--unpacked", "", "kernels: weights as files hold them, which they are until a model is packed", ""},
    {"--model", "MODEL", "contract: instead of the contract's own", ""},
    {"--out", "DIR", "contract: the result's folder, which must not exist (default: a dated one here)", ""},
    {"--baseline", "DIR", "contract: an earlier result; slower than that is exit code 4", ""},
    {"--band", "SHARE", "contract, compare: how much slower is not slower (default 0.1)", ""},
    {"--json", "", "Print one JSON object with every figure", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::hub, SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze bench model smollm2 --threads 2", "Prompt and generation rates, and what share of the limit they are"},
    {"adze bench model smollm2 -t 2 --prompt-tokens 0 --batch 1,8,16", "Texts side by side"},
    {"adze bench model x.gguf -t 2 --peer ./llama-bench", "Beside llama.cpp, round by round"},
    {"adze bench contract bench/contracts/code-edit.json",
     "Answers checked against plain decoding, and how fast they come"},
    {"adze bench kernels Q4_0 Q8_0 --rows 1,8", "Matrix products alone"},
};

Result<ExitCode> run_bench(Context& context) {
  const std::string what = *context.arguments.positional(0);
  if (what == "contract") return contract::bench_contract(context);
  if (what == "compare") return contract::bench_compare(context);
  if (what == "baseline") return contract::bench_baseline(context);
  const auto words = [&](std::size_t most) -> Status {
    const auto more = context.arguments.positional(most);
    if (!more) return {};
    return fail(ErrorCode::invalid_argument, fmt::format("adze bench {} does nothing with '{}'", what, *more),
                "Leave it out.");
  };
  const auto options = [&](std::initializer_list<std::string_view> others, std::string_view whose) -> Status {
    for (const std::string_view option : others) {
      if (!context.arguments.has(option)) continue;
      return fail(ErrorCode::invalid_argument, fmt::format("--{} belongs to adze bench {}", option, whose),
                  "Leave it out.");
    }
    return {};
  };
  if (what != "model") {
    ADZE_TRY_STATUS(options({"prompt-tokens", "generate-tokens", "depth", "batch", "rounds", "peer"}, "model"));
  }
  if (what != "kernels") ADZE_TRY_STATUS(options({"rows", "unpacked"}, "kernels"));
  if (what != "kernels") ADZE_TRY_STATUS(words(what == "model" ? 2 : 1));
  if (what == "model") return bench::bench_model(context);
  if (what == "kernels") return bench::bench_kernels(context);
  if (what == "limits") return bench::bench_limits(context);
  return fail(ErrorCode::invalid_argument, fmt::format("there is no benchmark '{}'", what),
              "It is model, kernels, limits, contract, compare or baseline.");
}

}  // namespace

constinit const Command kBench{
    .name = "bench",
    .summary = "Measure a model, the kernels, or the machine's limits",
    .description =
        "Rates as a share of what this machine can do at most: the bandwidth at which as many threads read as many "
        "bytes, and the rate at which they multiply. The limits are measured in the same run.",
    .positionals = kPositionals,
    .options = kOptions,
    .settings = kSettings,
    .examples = kExamples,
    .run = run_bench};

}  // namespace adze::cli
