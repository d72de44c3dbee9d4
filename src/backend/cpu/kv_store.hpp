// The memory behind KV pages: for every page of a group's pool, keys and values of the group's layers. Which page
// belongs to whom is the cache room's affair; here a page id is an index. Memory is reserved for all pages at once and
// backed by the system as pages are first written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/arena.hpp"
#include "backend/cpu/kernel_table.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::cpu {

// Bytes of one KV head's keys (or values) in one page.
std::size_t key_head_bytes(KvFormat format, int head_size);
std::size_t value_head_bytes(KvFormat format, int head_size);
// Of all layers of a group.
std::size_t kv_page_bytes(const ops::Plan& plan, backend::PageGroup group, KvFormat format);

class KvStore {
 public:
  // So many pages of each group. Error: out_of_memory when the address space for them cannot be had.
  static Result<KvStore> reserve(const ops::Plan& plan, KvFormat format, std::int64_t pages,
                                 std::int64_t sliding_pages);
  KvFormat format() const { return format_; }
  std::int64_t pages(backend::PageGroup group) const { return pool(group).pages; }
  std::size_t page_bytes(backend::PageGroup group) const { return pool(group).page_bytes; }
  std::uint64_t reserved_bytes() const { return pools_[0].bytes() + pools_[1].bytes(); }

  // All keys and values of a page; both are pages of the group (ADZE_CHECK).
  void copy(backend::PageGroup group, std::int32_t from, std::int32_t to);

  // The pages of a layer's group, of one sequence.
  std::span<const std::int32_t> table(const backend::SequencePages& sequence, int layer) const {
    return layers_[static_cast<std::size_t>(layer)].group == backend::PageGroup::full ? sequence.full
                                                                                      : sequence.sliding;
  }

  std::byte* keys(std::int32_t page, int layer, int kv_head) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    return l.base + l.keys + static_cast<std::size_t>(page) * l.page_bytes +
           static_cast<std::size_t>(kv_head) * l.key_head;
  }
  std::byte* values(std::int32_t page, int layer, int kv_head) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    return l.base + l.values + static_cast<std::size_t>(page) * l.page_bytes +
           static_cast<std::size_t>(kv_head) * l.value_head;
  }

 private:
  struct Pool {  // of a group
    Arena arena;
    std::byte* base = nullptr;
    std::int64_t pages = 0;
    std::size_t page_bytes = 0;
    std::size_t bytes() const { return page_bytes * static_cast<std::size_t>(pages); }
  };
  struct Layer {
    backend::PageGroup group;
    std::byte* base;                   // of the group
    std::size_t page_bytes;            // of the group
    std::size_t keys, values;          // offsets in a page
    std::size_t key_head, value_head;  // bytes per KV head
  };
  KvStore() = default;
  const Pool& pool(backend::PageGroup group) const { return pools_[static_cast<std::size_t>(group)]; }

  KvFormat format_ = KvFormat::f16;
  Pool pools_[2];  // by PageGroup
  std::vector<Layer> layers_;
};

}  // namespace adze::cpu
