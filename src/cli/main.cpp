// The program: finds the command, gathers its settings, calls it, and turns its result into an exit code.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "base/suggest.hpp"
#include "cli/context.hpp"
#include "cli/help.hpp"
#include "cli/version.hpp"

namespace adze::cli {
namespace {

Result<ExitCode> unknown_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command* command : commands()) names.push_back(command->name);
  const std::string hint = did_you_mean(name, names);
  return fail(ErrorCode::invalid_argument, fmt::format("there is no command '{}'", name),
              hint.empty() ? "adze --help lists the commands." : hint);
}

Result<ExitCode> dispatch(std::span<const char* const> words, Console& console) {
  if (words.empty()) {
    std::fputs(program_help().c_str(), stderr);
    return ExitCode::usage;
  }
  const std::string_view name = words.front();
  if (name == "--help" || name == "-h" || name == "help") {
    const Command* about = words.size() > 1 ? find_command(words[1]) : nullptr;
    console.print(about == nullptr ? program_help() : command_help(*about));
    return ExitCode::ok;
  }
  const Command* command = find_command(name == "--version" ? "version" : name);
  if (command == nullptr) return unknown_command(name);

  ADZE_TRY(Arguments arguments, parse_arguments(*command, words.subspan(1)));
  if (arguments.wants_help()) {
    console.print(command_help(*command));
    return ExitCode::ok;
  }
  Context context{*command, std::move(arguments), {}, console, now_seconds()};
  const auto lookup = [](const char* variable) -> const char* { return std::getenv(variable); };
  const auto& config = context.arguments.config_file();
  const std::filesystem::path file = config ? std::filesystem::path(*config) : default_config_path(lookup);
  const bool required = config.has_value() || std::getenv("ADZE_CONFIG") != nullptr;
  if (!file.empty()) ADZE_TRY_STATUS(context.builder.read_file(file, required));
  ADZE_TRY_STATUS(context.builder.read_environment(lookup));
  ADZE_TRY_STATUS(apply_flags(context.arguments, context.builder));
  console.set_quiet(context.settings().quiet);
  return command->run(context);
}

ExitCode run(std::span<const char* const> words) {
  Console console;
  Result<ExitCode> result = dispatch(words, console);
  const Status finished = console.finish();
  if (!finished) result = tl::unexpected<Error>(finished.error());
  if (result) return *result;
  console.error(result.error());
  return exit_code_for(result.error().code);
}

// A file that is opened while a standard stream is closed would get its number, and what was meant for the stream would
// be written into the file. Stand-ins that fail as a closed stream does keep the numbers taken.
void occupy_standard_streams() {
  const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int stream = 0; stream < 3; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    const int fd = ::open("/dev/null", modes[stream]);  // the lowest free number, which is `stream`
    if (fd > stream) ::close(fd);
  }
}

}  // namespace
}  // namespace adze::cli

int main(int argc, char** argv) {
  adze::cli::occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of the write, with a sentence
  try {
    const std::vector<const char*> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    return static_cast<int>(adze::cli::run(words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adze: internal error: %s\nThis is a bug in Adze; please report it.\n", error.what());
    return static_cast<int>(adze::cli::ExitCode::internal);
  }
}
