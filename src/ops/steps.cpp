#include "ops/steps.hpp"

#include <cmath>

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
  std::string_view operator()(const Route&) const { return "Route"; }
  std::string_view operator()(const Experts&) const { return "Experts"; }
  std::string_view operator()(const DeltaPrep&) const { return "DeltaPrep"; }
  std::string_view operator()(const DeltaScan&) const { return "DeltaScan"; }
  std::string_view operator()(const DeltaOut&) const { return "DeltaOut"; }
  std::string_view operator()(const Head&) const { return "Head"; }
};

struct Accesses {
  Access operator()(const Embed& s) const { return {{}, {s.out}}; }
  Access operator()(const Norm& s) const { return {{s.in}, {s.out}}; }
  Access operator()(const ResidualNorm& s) const {
    Access access{{s.residual}, {s.residual}};
    if (s.out >= 0) access.writes.push_back(s.out);
    for (const auto& addend : s.addends) access.reads.push_back(addend.in);
    return access;
  }
  Access operator()(const Project& s) const { return {{s.in}, {s.out}}; }
  Access operator()(const AttentionPrep& s) const {
    return s.gate < 0 ? Access{{s.in}, {s.out}} : Access{{s.in}, {s.out, s.gate}};
  }
  Access operator()(const Attend& s) const {
    return s.gate < 0 ? Access{{s.in}, {s.out}} : Access{{s.in, s.gate}, {s.out}};
  }
  Access operator()(const ProjectAdd& s) const {
    return s.add ? Access{{s.in, s.out}, {s.out}} : Access{{s.in}, {s.out}};
  }
  Access operator()(const GatedPair& s) const {
    Access access{{s.in}, {s.out}};
    if (s.side >= 0) access.reads.push_back(s.side);
    return access;
  }
  Access operator()(const Route& s) const { return {{s.in}, {s.out}}; }
  Access operator()(const Experts& s) const {
    return s.add ? Access{{s.in, s.routes, s.out}, {s.out}} : Access{{s.in, s.routes}, {s.out}};
  }
  Access operator()(const DeltaPrep& s) const { return {{s.in}, {s.out}}; }
  Access operator()(const DeltaScan& s) const { return {{s.in}, {s.out}}; }
  Access operator()(const DeltaOut& s) const { return {{s.in, s.gate}, {s.out}}; }
  Access operator()(const Head& s) const { return {{s.in}, {}}; }
};

}  // namespace

float position_scale(const AttentionPrep& step, std::int32_t position) {
  if (step.position_scale == 0.0f) return 1.0f;
  const double intervals = std::floor(static_cast<double>(position) / step.position_interval);
  return static_cast<float>(1.0 + static_cast<double>(step.position_scale) * std::log1p(intervals));
}

bool stores(const Step& step) {
  if (std::holds_alternative<DeltaPrep>(step) || std::holds_alternative<DeltaScan>(step)) return true;
  const auto* prep = std::get_if<AttentionPrep>(&step);
  return prep != nullptr && prep->stored != AttentionPrep::Stored::nothing;
}

Access step_access(const Step& step) { return std::visit(Accesses{}, step); }

std::string_view step_name(const Step& step) { return std::visit(Name{}, step); }

}  // namespace adze::ops
