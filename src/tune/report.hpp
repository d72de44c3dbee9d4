// What `adze tune` prints.
#pragma once

#include <string>

#include "tune/tuner.hpp"

namespace adze::tune {

// Tokens per second under another compute type, which is never chosen by itself: it computes other numbers.
struct OtherCompute {
  std::string name;  // "f32"
  Rates own, other;  // measured in turns
};

std::string report_text(const Measured& measured, const OtherCompute& other);
// {"profile": as in the file, "trials": [...], "left_out": [...], "other_compute": {...}}
std::string report_json(const Measured& measured, const OtherCompute& other);

}  // namespace adze::tune
