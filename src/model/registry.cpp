#include "model/registry.hpp"

#include <algorithm>
#include <array>

namespace adze::model {

namespace family {
// families/<name>.cpp
extern const Family kCohere2;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kGemma4;
extern const Family kGptOss;
extern const Family kGranite;
extern const Family kLlama;
extern const Family kMinistral3;
extern const Family kOlmo2;
extern const Family kPhi3;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen35;
extern const Family kQwen35Moe;
extern const Family kQwen3Moe;
extern const Family kQwen3Next;
extern const Family kSmolLm3;
}  // namespace family

namespace {
constexpr std::array kFamilies{
    &family::kCohere2,   &family::kGemma2,  &family::kGemma3,     &family::kGemma4,    &family::kGptOss,
    &family::kGranite,   &family::kLlama,   &family::kMinistral3, &family::kOlmo2,     &family::kPhi3,
    &family::kQwen2,     &family::kQwen3,   &family::kQwen35,     &family::kQwen35Moe, &family::kQwen3Moe,
    &family::kQwen3Next, &family::kSmolLm3,
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
