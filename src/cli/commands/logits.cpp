#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "format/npy.hpp"
#include "format/safetensors.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {{"MODEL", "A model file or folder, or the name of a pulled model (adze list)"}};
constexpr Option kOptions[] = {
    {"--ids", "IDS", "The token ids, comma separated, exactly as they are", ""},
    {"--all", "", "Every position [tokens, vocabulary] instead of the last one [vocabulary]", ""},
    {"-o,--out", "FILE", "Write the logits to FILE, a float32 .npy array; without it: the ten largest, as text", ""},
    {"--dump-layers", "FILE", "Write what every layer computed to FILE, a .safetensors file", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::hub, SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze logits smollm2 --ids 1,2,3 --all --out logits.npy", "Every position's logits, for NumPy"},
};

Status write_all(Engine& engine, const std::vector<std::int32_t>& ids, bool all, const std::string& file) {
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t vocabulary = engine.info().vocabulary;
  const std::vector<std::int64_t> shape =
      all ? std::vector<std::int64_t>{count, vocabulary} : std::vector<std::int64_t>{vocabulary};
  ADZE_TRY(format::NpyWriter writer, format::NpyWriter::create(file, shape));
  Status written;
  ADZE_TRY_STATUS(engine.evaluate(
      ids, [&](std::int64_t position) { return all || position == count - 1; },
      [&](std::int64_t, std::span<const float> logits) {
        if (written) written = writer.append(logits);
      }));
  ADZE_TRY_STATUS(written);
  return writer.commit();
}

Status print_largest(Console& console, Engine& engine, const std::vector<std::int32_t>& ids) {
  const auto last = static_cast<std::int64_t>(ids.size()) - 1;
  return engine.evaluate(
      ids, [&](std::int64_t position) { return position == last; },
      [&](std::int64_t, std::span<const float> logits) {
        std::vector<std::int32_t> order(logits.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
        const std::size_t shown = std::min<std::size_t>(10, order.size());
        std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(shown),
                                  [&](std::int32_t a, std::int32_t b) {
                                    const float x = logits[static_cast<std::size_t>(a)];
                                    const float y = logits[static_cast<std::size_t>(b)];
                                    return x != y ? x > y : a < b;
                                  });
        for (std::size_t i = 0; i < shown; ++i) {
          const std::array<std::int32_t, 1> id{order[i]};
          console.print(fmt::format("{:>8}  {:>10.4f}  {}\n", id[0], logits[static_cast<std::size_t>(id[0])],
                                    engine.detokenize(id, true)));
        }
      });
}

Status dump_layers(Engine& engine, const std::vector<std::int32_t>& ids, const std::string& file) {
  ADZE_TRY(const std::vector<Engine::LayerDump> layers, engine.dump_layers(ids));
  format::SafetensorsWriter writer;
  for (const Engine::LayerDump& layer : layers) {
    const std::array<std::int64_t, 2> shape{layer.rows, layer.columns};
    writer.add(layer.name, shape, layer.values);
  }
  return writer.write(file);
}

Result<ExitCode> run_logits(Context& context) {
  const auto text = context.arguments.value("ids");
  if (!text) return fail(ErrorCode::invalid_argument, "adze logits needs --ids", "adze tokenize makes ids from text.");
  ADZE_TRY(Engine engine, load_engine(context));
  ADZE_TRY(const std::vector<std::int32_t> ids, parse_ids(*text, engine.info().vocabulary));
  if (ids.empty()) return fail(ErrorCode::invalid_argument, "--ids is empty", "Give at least one token id.");
  const auto out = context.arguments.value("out");
  const auto layers = context.arguments.value("dump-layers");
  if (layers) ADZE_TRY_STATUS(dump_layers(engine, ids, *layers));
  if (out) {
    ADZE_TRY_STATUS(write_all(engine, ids, context.arguments.has("all"), *out));
  } else if (!layers) {
    ADZE_TRY_STATUS(print_largest(context.console, engine, ids));
  }
  return ExitCode::ok;
}

}  // namespace

constinit const Command kLogits{.name = "logits",
                                .summary = "Write the logits of token ids to a file",
                                .description = {},
                                .positionals = kPositionals,
                                .options = kOptions,
                                .settings = kSettings,
                                .examples = kExamples,
                                .run = run_logits};

}  // namespace adze::cli
