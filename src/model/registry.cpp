#include "model/registry.hpp"

#include <algorithm>
#include <array>

namespace adze::model {

namespace family {
extern const Family kLlama;  // families/llama.cpp
}

namespace {
constexpr std::array<const Family*, 1> kFamilies{
    &family::kLlama,
};
}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family* find_family(std::string_view architecture) {
  for (const Family* family : kFamilies) {
    if (std::ranges::find(family->architectures, architecture) != family->architectures.end()) return family;
  }
  return nullptr;
}

std::string supported_architectures() {
  std::string names;
  for (const Family* family : kFamilies) {
    for (const std::string_view name : family->architectures) {
      if (!names.empty()) names += ", ";
      names += name;
    }
  }
  return names;
}

}  // namespace adze::model
