#include "cli/chat.hpp"

#include <fmt/format.h>

#include <array>

#include "base/suggest.hpp"
#include "cli/chat_file.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "cli/line_editor.hpp"
#include "cli/utf8.hpp"

namespace adze::cli {
namespace {

constexpr std::string_view kBlockMark = "\"\"\"";

class Session {
 public:
  Session(Context& context, Engine& engine, Conversation& conversation)
      : context_(context), engine_(engine), conversation_(conversation) {}

  ExitCode talk();

  struct SlashCommand {
    std::string_view name;
    std::string_view arguments;
    std::string_view help;
    Status (Session::*run)(const std::string& rest);
  };
  static std::span<const SlashCommand> slash_commands();

 private:
  LineEditor::Outcome read_message(std::string& message);
  Status answer(const std::string& message);
  Status command(const std::string& line);

  Status show_help(const std::string& rest);
  Status clear(const std::string& rest);
  Status set_system(const std::string& rest);
  Status save(const std::string& rest);
  Status load(const std::string& rest);
  Status set(const std::string& rest);
  Status quit(const std::string& rest);

  Context& context_;
  Engine& engine_;
  Conversation& conversation_;
  LineEditor editor_;
  bool done_ = false;
};

std::span<const Session::SlashCommand> Session::slash_commands() {
  static constexpr std::array kCommands{
      SlashCommand{"/help", "", "Print this", &Session::show_help},
      SlashCommand{"/clear", "", "Forget the conversation; the system message stays", &Session::clear},
      SlashCommand{"/system", "[TEXT]", "Set the system message, or remove it", &Session::set_system},
      SlashCommand{"/save", "FILE", "Write the conversation to FILE", &Session::save},
      SlashCommand{"/load", "FILE", "Go on with the conversation in FILE", &Session::load},
      SlashCommand{"/set", "[KEY VALUE]", "Change a sampling, ending or chat setting; alone: list them", &Session::set},
      SlashCommand{"/quit", "", "Leave (also Ctrl-D)", &Session::quit},
  };
  return kCommands;
}

// What /set may change while a model is loaded.
bool settable(const SettingRow& row) {
  return row.group == SettingGroup::sampling || row.group == SettingGroup::ending || row.name == "thinking";
}

ExitCode Session::talk() {
  watch_interrupts();
  context_.console.note(
      fmt::format("{}, context {} tokens. /help lists the commands, Ctrl-C stops an answer, Ctrl-D "
                  "leaves.",
                  engine_.info().name, engine_.info().context));
  std::string message;
  while (!done_) {
    const LineEditor::Outcome outcome = read_message(message);
    if (outcome == LineEditor::Outcome::end) break;
    if (outcome == LineEditor::Outcome::interrupted || message.empty()) continue;
    const Status status = message.starts_with('/') ? command(message) : answer(message);
    if (!status) context_.console.error(status.error());
  }
  return ExitCode::ok;
}

// One line, or the lines between two """ marks.
LineEditor::Outcome Session::read_message(std::string& message) {
  LineEditor::Outcome outcome = editor_.read(">>> ", message);
  if (outcome != LineEditor::Outcome::line) return outcome;
  if (!message.empty()) editor_.remember(message);
  if (!message.starts_with(kBlockMark)) return outcome;
  message.erase(0, kBlockMark.size());
  std::string line;
  while (!message.ends_with(kBlockMark)) {
    outcome = editor_.read("... ", line);
    if (outcome != LineEditor::Outcome::line) return outcome;
    message += (message.empty() ? "" : "\n") + line;
  }
  message.erase(message.size() - kBlockMark.size());
  return outcome;
}

Status Session::answer(const std::string& message) {
  if (first_bad_utf8(message)) {
    return fail(ErrorCode::invalid_argument, "that line is not UTF-8", "Use a terminal with a UTF-8 locale.");
  }
  ADZE_TRY(const GenerateOptions options, generate_options(engine_, context_.settings()));
  auto generation =
      conversation_.say(message, options, [&](std::string_view piece) { return context_.console.print_answer(piece); });
  clear_interrupt();
  if (!generation) return tl::unexpected<Error>(std::move(generation.error()));
  context_.console.print("\n");
  if (generation->finish == FinishReason::cancelled) context_.console.note("(stopped)");
  if (ended_by_context(*generation, options)) context_.console.note("(the context is full; /clear starts afresh)");
  if (context_.settings().verbose) print_statistics(context_, engine_, *generation);
  context_.console.print("\n");
  context_.console.flush();
  return {};
}

Status Session::command(const std::string& line) {
  const auto space = line.find(' ');
  const std::string_view name = std::string_view(line).substr(0, space);
  const auto begin = line.find_first_not_of(' ', space);  // npos: nothing but spaces follows the name
  const std::string rest =
      begin == std::string::npos || space == std::string::npos ? std::string{} : line.substr(begin);
  std::vector<std::string_view> names;
  for (const SlashCommand& known : slash_commands()) {
    if (known.name == name) return (this->*known.run)(rest);
    names.push_back(known.name);
  }
  const std::string hint = did_you_mean(name, names);
  return fail(ErrorCode::invalid_argument, fmt::format("there is no command {}", name),
              hint.empty() ? "/help lists them." : hint);
}

Status Session::show_help(const std::string& /*rest*/) {
  for (const SlashCommand& known : slash_commands()) {
    context_.console.print(fmt::format("  {:<22} {}\n", fmt::format("{} {}", known.name, known.arguments), known.help));
  }
  context_.console.print("  \"\"\"                    Begins and ends a message of several lines\n");
  return {};
}

Status Session::clear(const std::string& /*rest*/) {
  conversation_.clear();
  return {};
}

Status Session::set_system(const std::string& rest) {
  conversation_.set_system(rest);
  return context_.builder.set(*find_setting("system"), rest, {SettingSource::flag, "/system"});
}

Status Session::save(const std::string& rest) {
  if (rest.empty()) return fail(ErrorCode::invalid_argument, "/save needs a file name", "Write /save FILE.");
  ADZE_TRY_STATUS(save_chat(rest, {conversation_.system(), conversation_.messages()}));
  context_.console.note(fmt::format("saved {} messages to {}", conversation_.messages().size(), rest));
  return {};
}

Status Session::load(const std::string& rest) {
  if (rest.empty()) return fail(ErrorCode::invalid_argument, "/load needs a file name", "Write /load FILE.");
  ADZE_TRY(SavedChat chat, load_chat(rest));
  ADZE_TRY_STATUS(set_system(chat.system));
  const std::size_t count = chat.messages.size();
  conversation_.set_messages(std::move(chat.messages));
  context_.console.note(fmt::format("loaded {} messages", count));
  return {};
}

Status Session::set(const std::string& rest) {
  if (rest.empty()) {
    for (const SettingRow& row : setting_rows()) {
      if (!settable(row)) continue;
      const std::string value = format_setting(row, context_.settings());
      context_.console.print(fmt::format("  {:<20} {}\n", row.name, value.empty() ? "(the model's)" : value));
    }
    return {};
  }
  const auto space = rest.find_first_of(" =");
  const std::string key = rest.substr(0, space);
  const SettingRow* row = find_setting(key);
  if (row == nullptr || !settable(*row)) {
    std::vector<std::string_view> names;
    for (const SettingRow& known : setting_rows()) {
      if (settable(known)) names.push_back(known.name);
    }
    const std::string hint = did_you_mean(key, names);
    return fail(ErrorCode::invalid_argument, fmt::format("/set cannot change '{}'", key),
                hint.empty() ? "/set alone lists what it can." : hint);
  }
  const auto begin = space == std::string::npos ? std::string::npos : rest.find_first_not_of(" =", space);
  const std::string value = begin == std::string::npos ? std::string{} : rest.substr(begin);
  ADZE_TRY_STATUS(context_.builder.set(*row, value, {SettingSource::flag, "/set"}));
  conversation_.set_thinking(thinking_of(context_.settings()));
  return {};
}

Status Session::quit(const std::string& /*rest*/) {
  done_ = true;
  return {};
}

}  // namespace

Result<ExitCode> chat(Context& context, Engine& engine, Conversation& conversation) {
  return Session(context, engine, conversation).talk();
}

}  // namespace adze::cli
