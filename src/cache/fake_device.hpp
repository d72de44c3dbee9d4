// For tests: a device whose cells hold, instead of keys and values, a digest of the text up to their position. So a
// page or a state that belongs to another text, or to another part of this one, is told from the right one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache.hpp"

namespace adze::cache {

// digests[i] is of the first i tokens: what a state holds after them. Cell i holds digests[i + 1].
inline std::vector<std::uint64_t> digests_of(std::uint64_t root, std::span<const std::int32_t> ids) {
  std::vector<std::uint64_t> all = {root * 0x9E3779B97F4A7C15u + 1};
  for (const std::int32_t id : ids) {
    const std::uint64_t mixed = (all.back() ^ static_cast<std::uint64_t>(id + 1)) * 0xBF58476D1CE4E5B9u;
    all.push_back(mixed ^ (mixed >> 29));
  }
  return all;
}

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(const CacheOptions& options)
      : page_(static_cast<std::size_t>(options.page_tokens)), states(static_cast<std::size_t>(options.slots)) {
    cells_[0].resize(static_cast<std::size_t>(options.full_pages) * page_);
    cells_[1].resize(static_cast<std::size_t>(options.sliding_pages) * page_);
  }
  void copy_page(Group group, std::int32_t from, std::int32_t to) override {
    for (std::size_t i = 0; i < page_; ++i) cell(group, to, i) = cell(group, from, i);
    ++page_copies;
  }
  void copy_state(std::int32_t from, std::int32_t to) override {
    states[static_cast<std::size_t>(to)] = states[static_cast<std::size_t>(from)];
    ++state_copies;
  }
  // The cell of a position in a list of pages.
  std::uint64_t& at(Group group, std::span<const std::int32_t> pages, std::int64_t position) {
    const auto p = static_cast<std::size_t>(position);
    return cell(group, pages[p / page_], p % page_);
  }
  std::uint64_t& state(std::int32_t slot) { return states[static_cast<std::size_t>(slot)]; }

 private:
  std::uint64_t& cell(Group group, std::int32_t page, std::size_t i) {
    return cells_[index_of(group)].at(static_cast<std::size_t>(page) * page_ + i);
  }

  std::size_t page_;
  std::array<std::vector<std::uint64_t>, kGroups> cells_;

 public:
  std::vector<std::uint64_t> states;
  int page_copies = 0, state_copies = 0;
};

}  // namespace adze::cache
