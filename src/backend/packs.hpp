// What an engine says about packed weights, and what it learns of them. Kernels read weights in an order of their own;
// a pack file (pack_file.hpp) keeps that order between starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace adze::backend {

// One file that weights come from, as it was when they were packed.
struct PackSource {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // of the file system's clock
  bool operator==(const PackSource&) const = default;
};

struct PackOptions {
  std::filesystem::path directory{};  // empty: weights are read as the model's file has them
  std::uint64_t budget_bytes = 0;     // of all pack files in the directory together
  Digest source{};                    // identity of the weights (format::WeightStore::source_digest)
  std::string model{};                // its name, and
  std::vector<PackSource> files{};    // where it lies: for whoever looks at the directory
  // Gives the pages of the model's files back to the system, and copies bytes of them without bringing pages in again
  // (false: it cannot): once everything else is read packed, only rows of embeddings are read there. Hints.
  std::function<void()> release{};
  std::function<bool(const std::byte* at, std::span<std::byte> into)> read{};
};

enum class PackState : std::uint8_t {
  off,      // nothing to pack, or no directory
  packing,  // in the background
  ready,    // mapped: the next forward pass reads it
  failed,   // weights are read as the model's file has them
};

struct PackReport {
  PackState state = PackState::off;
  bool found = false;  // ready since the start: the file was there
  std::uint64_t done_bytes = 0, total_bytes = 0;
  std::filesystem::path path{};
  std::optional<Error> error{};  // of `failed`
};

// Asked while something is packed, about twenty times a second: false ends the wait.
using PackProgress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

}  // namespace adze::backend
