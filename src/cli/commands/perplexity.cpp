// Perplexity as llama.cpp's tool defines it, so that figures can be set side by side: the text is cut into windows of
// --window tokens, each starts with BOS where the model has one, and the second half of each window counts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/limits.hpp"
#include "cli/commands/all.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/text_windows.hpp"
#include "format/npy.hpp"

namespace adze::cli {
namespace {

constexpr Positional kPositionals[] = {
    {"MODEL", "A model file or folder, or the name of a pulled model (adze list)"},
    {"FILE", "The text, UTF-8"},
};
constexpr Option kOptions[] = {
    {"--window", "TOKENS", "Tokens per window; the second half of each counts (default 512)", ""},
    {"--windows", "N", "Stop after N windows", ""},
    {"--save-logits", "FILE", "Write the logits of every counted position to FILE, a float32 .npy array", ""},
    {"--against", "FILE", "Also print the KL divergence of this model from the logits in FILE", ""},
    {"--json", "", "Print one JSON object", ""},
};
constexpr SettingGroup kSettings[] = {SettingGroup::engine, SettingGroup::hub, SettingGroup::cache};
constexpr Example kExamples[] = {
    {"adze perplexity model.gguf text.txt", "Perplexity at a context of 512"},
    {"adze perplexity model-q4.gguf text.txt --against f16-logits.npy", "What quantisation changed"},
};

// log(sum(exp(x))), in double.
double log_sum_exp(std::span<const float> x) {
  const float top = *std::ranges::max_element(x);
  double sum = 0;
  for (const float v : x) sum += std::exp(static_cast<double>(v) - top);
  return std::log(sum) + top;
}

struct Score {
  std::int64_t counted = 0;
  double loss = 0;  // sum of -log p of the token that came
  double loss_squared = 0;
  double divergence = 0;  // sum of KL(saved || here)
  std::int64_t same_top = 0;

  double perplexity() const { return std::exp(loss / static_cast<double>(counted)); }
  // Of the perplexity, from the spread of the losses.
  double standard_error() const {
    const auto n = static_cast<double>(counted);
    const double mean = loss / n;
    const double variance = std::max(0.0, loss_squared / n - mean * mean);
    return n > 1 ? perplexity() * std::sqrt(variance / (n - 1)) : 0.0;
  }
};

void add_loss(Score& score, std::span<const float> logits, std::int32_t next) {
  const double loss = log_sum_exp(logits) - logits[static_cast<std::size_t>(next)];
  ++score.counted;
  score.loss += loss;
  score.loss_squared += loss * loss;
}

void add_divergence(Score& score, std::span<const float> saved, std::span<const float> here) {
  const double saved_total = log_sum_exp(saved);
  const double here_total = log_sum_exp(here);
  double sum = 0;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const double log_p = saved[i] - saved_total;
    sum += std::exp(log_p) * (log_p - (here[i] - here_total));
  }
  score.divergence += sum;
  const auto top = [](std::span<const float> x) { return std::ranges::max_element(x) - x.begin(); };
  score.same_top += top(saved) == top(here) ? 1 : 0;
}

Result<std::int64_t> count_of(const Context& context, std::string_view option, int least, std::int64_t fallback) {
  const auto text = context.arguments.value(option);
  if (!text) return fallback;
  ADZE_TRY(const int count, parse_count(fmt::format("--{}", option), *text, least, limits::kMaxCommandCount));
  return count;
}

// The second half of each window counts.
std::int64_t first_counted(const TextWindows& windows) { return windows.size / 2; }
std::int64_t counted_positions(const TextWindows& windows) {
  return windows.count * (windows.size - 1 - first_counted(windows));
}

Result<Score> score_windows(Context& context, Engine& engine, const TextWindows& windows) {
  const std::int64_t vocabulary = engine.info().vocabulary;
  std::optional<format::NpyArray> saved;
  if (const auto file = context.arguments.value("against")) {
    ADZE_TRY(saved, format::open_npy(*file));
    if (saved->shape != std::vector<std::int64_t>{counted_positions(windows), vocabulary}) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("'{}' holds logits of shape [{}], and this run makes [{}, {}]", *file,
                              fmt::join(saved->shape, ", "), counted_positions(windows), vocabulary),
                  "Save them with the same text, --window and --windows.");
    }
  }
  std::optional<format::NpyWriter> writer;
  if (const auto file = context.arguments.value("save-logits")) {
    const std::vector<std::int64_t> shape{counted_positions(windows), vocabulary};
    auto created = format::NpyWriter::create(*file, shape);
    if (!created) return tl::unexpected<Error>(created.error());
    writer.emplace(std::move(*created));
  }

  Score score;
  Status written;
  for (std::int64_t w = 0; w < windows.count && !interrupted(); ++w) {
    const std::vector<std::int32_t> ids = windows.at(w);
    ADZE_TRY_STATUS(engine.evaluate(
        ids, [&](std::int64_t position) { return position >= first_counted(windows) && position + 1 < windows.size; },
        [&](std::int64_t position, std::span<const float> logits) {
          if (saved) {
            add_divergence(score,
                           saved->values.subspan(static_cast<std::size_t>(score.counted * vocabulary), logits.size()),
                           logits);
          }
          add_loss(score, logits, ids[static_cast<std::size_t>(position + 1)]);
          if (writer && written) written = writer->append(logits);
        }));
    ADZE_TRY_STATUS(written);
    context.console.progress("perplexity", static_cast<double>(w + 1) / static_cast<double>(windows.count));
  }
  context.console.end_progress();
  if (interrupted()) return fail(ErrorCode::cancelled, "stopped before the end of the text");
  if (writer) ADZE_TRY_STATUS(writer->commit());
  return score;
}

Result<ExitCode> run_perplexity(Context& context) {
  ADZE_TRY(Engine engine, load_engine(context));
  ADZE_TRY(const std::int64_t size, count_of(context, "window", 4, std::min(kDefaultWindow, engine.info().context)));
  ADZE_TRY(const std::int64_t most, count_of(context, "windows", 1, 0));
  ADZE_TRY(const TextWindows windows, cut_text(engine, *context.arguments.positional(1), size, most));
  watch_interrupts();
  const double begin = now_seconds();
  ADZE_TRY(const Score score, score_windows(context, engine, windows));
  const double seconds = now_seconds() - begin;
  const bool compared = context.arguments.has("against");
  const auto counted = static_cast<double>(score.counted);
  if (context.arguments.has("json")) {
    JsonWriter json;
    json.begin_object()
        .field("perplexity", score.perplexity())
        .field("standard_error", score.standard_error())
        .field("window", windows.size)
        .field("windows", windows.count)
        .field("counted_tokens", score.counted)
        .field("seconds", seconds);
    if (compared) {
      json.field("kl_divergence", score.divergence / counted)
          .field("same_top_share", static_cast<double>(score.same_top) / counted);
    }
    context.console.print(json.end_object().take());
    return ExitCode::ok;
  }
  context.console.print(fmt::format("perplexity {:.4f} +/- {:.4f} over {} tokens ({} windows of {})\n",
                                    score.perplexity(), score.standard_error(), score.counted, windows.count,
                                    windows.size));
  if (compared) {
    context.console.print(fmt::format("KL divergence {:.6f}; same likeliest token {:.2f} %\n",
                                      score.divergence / counted,
                                      100.0 * static_cast<double>(score.same_top) / counted));
  }
  context.console.note(fmt::format("{:.1f} tokens/s; peak memory {}",
                                   static_cast<double>(windows.count * windows.size) / seconds,
                                   format_bytes(peak_memory_bytes())));
  return ExitCode::ok;
}

}  // namespace

constinit const Command kPerplexity{.name = "perplexity",
                                    .summary = "Measure how well a model predicts a text",
                                    .description = {},
                                    .positionals = kPositionals,
                                    .options = kOptions,
                                    .settings = kSettings,
                                    .examples = kExamples,
                                    .run = run_perplexity};

}  // namespace adze::cli
