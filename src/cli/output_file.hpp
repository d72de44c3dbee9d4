// The file that a command writes: never one that it reads, and an existing one only when asked to.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/context.hpp"

namespace adze::cli {

// Every file that `model` is read from: a GGUF file with the other parts of its split, or what lies in a folder but for
// .gguf files, which nothing reads there. Errors: those of GgufFile::open.
Result<std::vector<std::filesystem::path>> files_of_model(const std::filesystem::path& model);

// Whether `out` may be written. Errors: invalid_argument where it is one of `inputs`, by whatever name, --force or not,
// and where it exists without --force; `hint` then says what to do.
Status check_output(const Context& context, const std::filesystem::path& out,
                    const std::vector<std::filesystem::path>& inputs,
                    std::string_view hint = "Give --force to replace it.");

}  // namespace adze::cli
