// The memory behind KV pages: for every page of the pool, keys and values of all layers. Which page belongs to whom is
// the cache room's affair; here a page id is an index. Memory is reserved for all pages at once and backed by the
// system as pages are first written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernel_table.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::cpu {

// Bytes of one KV head's keys (or values) in one page.
std::size_t key_head_bytes(KvFormat format, int head_size);
std::size_t value_head_bytes(KvFormat format, int head_size);
std::size_t kv_page_bytes(const ops::Plan& plan, KvFormat format);

class KvStore {
 public:
  // Error: out_of_memory when the address space for `pages` cannot be had.
  static Result<KvStore> reserve(const ops::Plan& plan, KvFormat format, std::int64_t pages);
  KvStore(KvStore&& other) noexcept;
  KvStore& operator=(KvStore&&) = delete;
  ~KvStore();

  KvFormat format() const { return format_; }
  std::int64_t pages() const { return pages_; }
  std::size_t page_bytes() const { return page_bytes_; }

  void copy(std::int32_t from, std::int32_t to);

  std::byte* keys(std::int32_t page, int layer, int kv_head) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    return base_ + static_cast<std::size_t>(page) * page_bytes_ + l.keys +
           static_cast<std::size_t>(kv_head) * l.key_head;
  }
  std::byte* values(std::int32_t page, int layer, int kv_head) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    return base_ + static_cast<std::size_t>(page) * page_bytes_ + l.values +
           static_cast<std::size_t>(kv_head) * l.value_head;
  }

 private:
  struct Layer {
    std::size_t keys, values;          // offsets in a page
    std::size_t key_head, value_head;  // bytes per KV head
  };
  KvStore() = default;
  KvFormat format_ = KvFormat::f16;
  std::int64_t pages_ = 0;
  std::size_t page_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace adze::cpu
