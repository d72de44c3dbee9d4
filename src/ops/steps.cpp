#include "ops/steps.hpp"

namespace adze::ops {
namespace {

struct Name {
  std::string_view operator()(const Embed&) const { return "Embed"; }
  std::string_view operator()(const Norm&) const { return "Norm"; }
  std::string_view operator()(const ResidualNorm&) const { return "ResidualNorm"; }
  std::string_view operator()(const Project&) const { return "Project"; }
  std::string_view operator()(const AttentionPrep&) const { return "AttentionPrep"; }
  std::string_view operator()(const Attend&) const { return "Attend"; }
  std::string_view operator()(const ProjectAdd&) const { return "ProjectAdd"; }
  std::string_view operator()(const GatedPair&) const { return "GatedPair"; }
  std::string_view operator()(const Head&) const { return "Head"; }
};

}  // namespace

std::string_view step_name(const Step& step) { return std::visit(Name{}, step); }

}  // namespace adze::ops
