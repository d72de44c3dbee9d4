#include "base/result.hpp"

namespace adze {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::corrupt_file: return "corrupt_file";
    case ErrorCode::not_a_model: return "not_a_model";
    case ErrorCode::unsupported_architecture: return "unsupported_architecture";
    case ErrorCode::unsupported_feature: return "unsupported_feature";
    case ErrorCode::unsupported_type: return "unsupported_type";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::context_full: return "context_full";
    case ErrorCode::limit_exceeded: return "limit_exceeded";
    case ErrorCode::io: return "io";
    case ErrorCode::disk_full: return "disk_full";
    case ErrorCode::network: return "network";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::non_finite: return "non_finite";
    case ErrorCode::template_error: return "template_error";
    case ErrorCode::timed_out: return "timed_out";
  }
  return "unknown";
}

}  // namespace adze
