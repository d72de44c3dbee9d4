#include "cli/command.hpp"

#include <algorithm>

#include "cli/commands/all.hpp"

namespace adze::cli {
namespace {

constexpr const Command* kCommands[] = {
    &kRun,      &kGenerate, &kPull,       &kList,    &kRemove,   &kInspect,    &kPlan,    &kTokenize, &kDetokenize,
    &kTemplate, &kLogits,   &kPerplexity, &kConvert, &kQuantize, &kImatrix,    &kSynth,   &kManifest, &kBench,
    &kTune,     &kCache,    &kConfig,     &kDoctor,  &kMan,      &kCompletion, &kVersion,
};

}  // namespace

std::span<const Command* const> commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  const auto* found = std::ranges::find(kCommands, name, &Command::name);
  return found == std::end(kCommands) ? nullptr : *found;
}

bool takes_setting(const Command& command, const SettingRow& row) {
  return row.group == SettingGroup::output || std::ranges::count(command.settings, row.group) > 0;
}

std::string_view long_name(std::string_view flags) {
  const auto dashes = flags.find("--");
  const std::string_view name = flags.substr(dashes + 2);
  return name.substr(0, name.find(','));
}

}  // namespace adze::cli
