// What the commands that run a model share: options from settings, the prompt, and the statistics line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adze/adze.hpp"
#include "cli/context.hpp"
#include "cli/json_writer.hpp"

namespace adze::cli {

// What a command wants of its engine besides the settings.
struct EngineNeeds {
  std::optional<std::string> chat_template{};
  std::int64_t positions = 0;  // the context where the settings leave it open; 0: the model's own
  int sequences = 0;           // LoadOptions::sequences
};

// What the settings say about loading a model.
LoadOptions load_options(const Settings& settings, const EngineNeeds& needs);

// Finds and loads the model of the first positional. Errors: those of find_model and Engine::load.
Result<Engine> load_engine(const Context& context, const std::optional<std::string>& chat_template = {});

// The same for a model that is not the first positional.
Result<Engine> load_engine_of(const Context& context, const std::string& model, const EngineNeeds& needs);

// The kernels that --cpu asks for, as the backend names them; empty: the best.
std::string kernel_set_of(const Settings& settings);

// The model's defaults under the settings. Errors: invalid_argument for a malformed --logit-bias or --stop-id.
Result<GenerateOptions> generate_options(const Engine& engine, const Settings& settings);

// The i-th positional of a command that does without them for --list. Errors: invalid_argument, naming it.
Result<std::string> required_positional(const Context& context, std::size_t index);

// Of -t,--threads or the setting, for commands that run no engine; one per usable CPU where they say 0. Errors:
// invalid_argument.
Result<int> thread_count(const Context& context);

// "1,2,3" or "[1, 2, 3]". Errors: invalid_argument, naming the part that is not a token id of [0, vocabulary).
Result<std::vector<std::int32_t>> parse_ids(std::string_view text, int vocabulary);

// The text of --file, of the positionals from `first`, or of stdin for "-" or when there is neither and stdin is a
// pipe; nothing when there is none at all. A file and words together: the words, a blank line, the file. Errors:
// not_found, io, invalid_argument where the text is not UTF-8.
Result<std::optional<std::string>> prompt_text(const Context& context, std::size_t first);

// The answer ended where the context did, before the number of tokens that was asked for.
bool ended_by_context(const Generation& generation, const GenerateOptions& options);
// "prompt 12 tokens, 800 tokens/s; generated ..." on stderr, unless quiet; with --verbose the seed as well, and what
// share of this machine's limit that is, which is measured then.
void print_statistics(const Context& context, const Engine& engine, const Generation& generation);

// The lines of --verbose: the model, its context and route, the samplers in the order they run, the seed.
void print_verbose(Console& console, const Engine& engine, const GenerateOptions& options);

// One line: where the packed weights are, or why they are not.
std::string describe_packs(const PackInfo& packs);

// How far packing is; false once Ctrl-C was pressed.
bool show_packing(Console& console, std::uint64_t done, std::uint64_t total);

// Packed weights in the making are finished first, with progress on a terminal; Ctrl-C ends the wait.
void wait_for_packs(const Context& context, Engine& engine);

// At the end of a command that has answered: packed weights in the making are finished, where that pays. Says so on a
// terminal, where Ctrl-C ends it; with --verbose what came of it.
void finish_packs(const Context& context, Engine& engine);

// The members of --json output of run and generate.
void write_generation(JsonWriter& json, const Generation& generation);

Thinking thinking_of(const Settings& settings);

}  // namespace adze::cli
