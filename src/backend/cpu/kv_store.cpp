#include "backend/cpu/kv_store.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace adze::cpu {
namespace {

std::size_t scale_blocks(int head_size) { return static_cast<std::size_t>((head_size + 31) / 32); }
std::size_t aligned64(std::size_t n) { return (n + 63) / 64 * 64; }

// Values of a head in a page, each position's row `width` wide; q8_0 adds a float16 scale per 32 of the head.
std::size_t head_bytes(KvFormat format, std::size_t width, int head_size) {
  const std::size_t positions = kPageTokens;
  switch (format) {
    case KvFormat::f32: return positions * width * 4;
    case KvFormat::f16: return positions * width * 2;
    case KvFormat::q8_0: return aligned64(positions * width + positions * scale_blocks(head_size) * 2);
  }
  ADZE_CHECK(false, "KV format {}", static_cast<int>(format));
  return 0;
}

}  // namespace

std::size_t key_head_bytes(KvFormat format, int head_size) {
  return head_bytes(format, static_cast<std::size_t>(head_size), head_size);
}
std::size_t value_head_bytes(KvFormat format, int head_size) {
  return head_bytes(format, static_cast<std::size_t>(padded16(head_size)), head_size);
}

std::size_t kv_page_bytes(const ops::Plan& plan, backend::PageGroup group, KvFormat format) {
  std::size_t bytes = 0;
  for (const ops::KvLayer& layer : plan.kv_layers) {
    if (backend::page_group(layer) != group) continue;
    bytes += static_cast<std::size_t>(layer.kv_heads) *
             (key_head_bytes(format, layer.head_size) + value_head_bytes(format, layer.head_size));
  }
  return bytes;
}

Result<KvStore> KvStore::reserve(const ops::Plan& plan, KvFormat format, std::int64_t pages,
                                 std::int64_t sliding_pages) {
  KvStore store;
  store.format_ = format;
  for (const backend::PageGroup group : {backend::PageGroup::full, backend::PageGroup::sliding}) {
    Pool& pool = store.pools_[static_cast<std::size_t>(group)];
    pool.pages = group == backend::PageGroup::full ? pages : sliding_pages;
    pool.page_bytes = kv_page_bytes(plan, group, format);
    // A head's part of a page is a few KiB of every few hundred: with pages of 4 KiB each needs translations of its
    // own, and attention at depth takes 1.1 times as long. Refused or unknown, nothing is lost.
    auto arena = Arena::reserve(pool.bytes(), true);
    if (!arena) {
      return fail(ErrorCode::out_of_memory, fmt::format("cannot reserve {} bytes for {} KV pages", pool.bytes(), pages),
                  "ask for a smaller context with --ctx");
    }
    pool.arena = std::move(*arena);
    pool.base = pool.arena.take<std::byte>(pool.bytes());
  }
  std::size_t offsets[2] = {};
  for (const ops::KvLayer& layer : plan.kv_layers) {
    const auto group = static_cast<std::size_t>(backend::page_group(layer));
    const auto heads = static_cast<std::size_t>(layer.kv_heads);
    const std::size_t key_head = key_head_bytes(format, layer.head_size);
    const std::size_t value_head = value_head_bytes(format, layer.head_size);
    const std::size_t keys = offsets[group], values = keys + heads * key_head;
    offsets[group] = values + heads * value_head;
    store.layers_.push_back({.group = backend::page_group(layer),
                             .base = store.pools_[group].base,
                             .page_bytes = store.pools_[group].page_bytes,
                             .keys = keys,
                             .values = values,
                             .key_head = key_head,
                             .value_head = value_head});
  }
  return store;
}

void KvStore::copy(backend::PageGroup group, std::int32_t from, std::int32_t to) {
  const Pool& of = pool(group);
  ADZE_CHECK(from >= 0 && from < of.pages && to >= 0 && to < of.pages && from != to, "page {} to {} of {}", from, to,
             of.pages);
  const auto at = [&](std::int32_t page) { return of.base + static_cast<std::size_t>(page) * of.page_bytes; };
  std::copy_n(at(from), of.page_bytes, at(to));
}

}  // namespace adze::cpu
