#include "backend/cpu/kv_store.hpp"

#include <sys/mman.h>

#include <cstring>
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

std::size_t kv_page_bytes(const ops::Plan& plan, KvFormat format) {
  std::size_t bytes = 0;
  for (const ops::KvLayer& layer : plan.kv_layers) {
    bytes += static_cast<std::size_t>(layer.kv_heads) *
             (key_head_bytes(format, layer.head_size) + value_head_bytes(format, layer.head_size));
  }
  return bytes;
}

Result<KvStore> KvStore::reserve(const ops::Plan& plan, KvFormat format, std::int64_t pages) {
  KvStore store;
  store.format_ = format;
  store.pages_ = pages;
  std::size_t offset = 0;
  for (const ops::KvLayer& layer : plan.kv_layers) {
    Layer l{};
    l.key_head = key_head_bytes(format, layer.head_size);
    l.value_head = value_head_bytes(format, layer.head_size);
    l.keys = offset;
    offset += l.key_head * static_cast<std::size_t>(layer.kv_heads);
    l.values = offset;
    offset += l.value_head * static_cast<std::size_t>(layer.kv_heads);
    store.layers_.push_back(l);
  }
  store.page_bytes_ = offset;
  store.mapped_bytes_ = offset * static_cast<std::size_t>(pages);
  if (store.mapped_bytes_ == 0) return store;
  void* base =
      ::mmap(nullptr, store.mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    store.mapped_bytes_ = 0;
    return fail(ErrorCode::out_of_memory,
                fmt::format("cannot reserve {} bytes for {} KV pages", offset * static_cast<std::size_t>(pages), pages),
                "ask for a smaller context with --ctx");
  }
  // A head's part of a page is a few KiB of every few hundred: with pages of 4 KiB each needs translations of its own,
  // and attention at depth takes 1.1 times as long. Refused or unknown, nothing is lost.
  static_cast<void>(::madvise(base, store.mapped_bytes_, MADV_HUGEPAGE));
  store.base_ = static_cast<std::byte*>(base);
  return store;
}

KvStore::KvStore(KvStore&& other) noexcept
    : format_(other.format_),
      pages_(other.pages_),
      page_bytes_(other.page_bytes_),
      base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      layers_(std::move(other.layers_)) {}

void KvStore::copy(std::int32_t from, std::int32_t to) {
  ADZE_CHECK(from >= 0 && from < pages_ && to >= 0 && to < pages_ && from != to, "page {} to {}", from, to);
  const auto at = [&](std::int32_t page) { return base_ + static_cast<std::size_t>(page) * page_bytes_; };
  std::memcpy(at(to), at(from), page_bytes_);
}

KvStore::~KvStore() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

}  // namespace adze::cpu
