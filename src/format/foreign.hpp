// What a file that is not a model probably is, from its first bytes: so that the refusal can say so.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace adze::format {

struct ForeignFile {
  std::string what;  // completes "it is ...": "a safetensors file"
  std::string hint;  // what to do
};

ForeignFile recognise_foreign(std::span<const std::byte> bytes);

}  // namespace adze::format
