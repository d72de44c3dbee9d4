#include "cli/exit_code.hpp"

namespace adze::cli {
namespace {

constexpr ExitCodeRow kRows[] = {
    {ExitCode::ok, "it worked"},
    {ExitCode::internal, "a bug in Adze, or doctor found something wrong"},
    {ExitCode::usage, "an argument, flag or setting makes no sense"},
    {ExitCode::not_found, "a file, model or setting is not there"},
    {ExitCode::bad_file, "a file is damaged, is not what was expected, or needs what Adze does not support"},
    {ExitCode::does_not_fit, "not enough memory, or the text is longer than the context"},
    {ExitCode::network, "the network, the hub or what came from it"},
    {ExitCode::io, "the operating system refused to read or write, or the disk is full"},
    {ExitCode::model_fault, "the model computed something that is not a number"},
    {ExitCode::interrupted, "stopped by Ctrl-C"},
};

}  // namespace

std::span<const ExitCodeRow> exit_code_rows() { return kRows; }

ExitCode exit_code_for(ErrorCode error) {
  switch (error) {
    case ErrorCode::invalid_argument: return ExitCode::usage;
    case ErrorCode::not_found: return ExitCode::not_found;
    case ErrorCode::corrupt_file:
    case ErrorCode::not_a_model:
    case ErrorCode::unsupported_architecture:
    case ErrorCode::unsupported_feature:
    case ErrorCode::unsupported_type:
    case ErrorCode::limit_exceeded:
    case ErrorCode::template_error: return ExitCode::bad_file;
    case ErrorCode::out_of_memory:
    case ErrorCode::context_full: return ExitCode::does_not_fit;
    case ErrorCode::network: return ExitCode::network;
    case ErrorCode::io:
    case ErrorCode::disk_full: return ExitCode::io;
    case ErrorCode::timed_out:
    case ErrorCode::cancelled: return ExitCode::interrupted;
    case ErrorCode::non_finite: return ExitCode::model_fault;
  }
  return ExitCode::internal;
}

}  // namespace adze::cli
