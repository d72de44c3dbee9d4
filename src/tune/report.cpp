#include "tune/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace adze::tune {
namespace {

using Json = nlohmann::ordered_json;

bool has_other(const OtherCompute& other) { return other.other.generate > 0.0; }

std::string choice_text(const Trial& trial) {
  const backend::Choice& c = trial.choice;
  return fmt::format("  {}: {}{}{}, {:.2f} times the built-in (± {:.2f})\n", describe(c.regime),
                     describe(c.knob, c.value), c.shape.empty() ? "" : " for ", c.shape, c.gain, trial.error);
}

}  // namespace

std::string report_text(const Measured& measured, const OtherCompute& other) {
  const Profile& profile = measured.profile;
  std::string out =
      fmt::format("{}: {}, {} CPUs, {}\n\n{:<26}{:>12}{:>12}\n", profile.model, profile.subject.kernel_set,
                  profile.subject.cpus, profile.subject.processor, "a pass of", "built-in", "chosen");
  for (const RegimeGain& gain : profile.gains) {
    out += fmt::format("{:<26}{:>9.2f} ms{:>9.2f} ms  {:.2f} times\n", describe(gain.regime), gain.built_in_ms,
                       gain.chosen_ms, gain.built_in_ms / gain.chosen_ms);
  }
  std::string chosen;
  for (const Trial& trial : measured.trials) {
    if (trial.chosen) chosen += choice_text(trial);
  }
  out += chosen.empty() ? "\nNothing is faster than what the built-in rules choose.\n" : "\nchosen:\n" + chosen;
  for (const std::string& what : measured.left_out) out += fmt::format("left out: {}\n", what);
  out += fmt::format("\n{:<26}", "rows of a pass");
  for (const Cost& e : profile.costs) out += fmt::format("{:>9}", e.rows);
  out += fmt::format("\n{:<26}", "ms, short context");
  for (const Cost& e : profile.costs) out += fmt::format("{:>9.2f}", e.short_ms);
  if (profile.long_context > 0) {
    out += fmt::format("\n{:<26}", fmt::format("ms, behind {} tokens", profile.long_context));
    for (const Cost& e : profile.costs) out += fmt::format("{:>9.2f}", e.long_ms);
  }
  out += '\n';
  if (has_other(other)) {
    out += fmt::format(
        "\n--compute {} would generate {:.2f} times as fast ({:.1f} tokens/s, not {:.1f}) and take prompts {:.2f} "
        "times as "
        "fast\n({:.1f} tokens/s, not {:.1f}); it computes other numbers, and is never chosen by itself.\n",
        other.name, other.other.generate / other.own.generate, other.other.generate, other.own.generate,
        other.other.prompt / other.own.prompt, other.other.prompt, other.own.prompt);
  }
  return out;
}

std::string report_json(const Measured& measured, const OtherCompute& other) {
  Json trials = Json::array();
  for (const Trial& t : measured.trials) {
    trials.push_back({{"regime", std::string(regime_word(t.choice.regime))},
                      {"knob", std::string(knob_word(t.choice.knob))},
                      {"shape", t.choice.shape},
                      {"value", t.choice.value},
                      {"gain", t.choice.gain},
                      {"error", t.error},
                      {"chosen", t.chosen}});
  }
  Json root{{"profile", Json::parse(to_json(measured.profile), nullptr, false)},
            {"trials", std::move(trials)},
            {"left_out", measured.left_out}};
  const auto rates = [](const Rates& r) {
    return Json{{"generate_tokens_per_second", r.generate}, {"prompt_tokens_per_second", r.prompt}};
  };
  if (has_other(other)) {
    root["other_compute"] = {{"name", other.name}, {"own", rates(other.own)}, {"other", rates(other.other)}};
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace adze::tune
