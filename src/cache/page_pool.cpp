#include "cache/page_pool.hpp"

#include <fmt/format.h>

#include "base/check.hpp"

namespace adze::cache {

PagePool::PagePool(std::int32_t pages) {
  ADZE_CHECK(pages >= 0, "{} pages", pages);
  slots_.resize(static_cast<std::size_t>(pages));
  free_.reserve(slots_.size());
  for (std::int32_t i = pages; i-- > 0;) free_.push_back(i);  // the lowest index is taken first
}

PagePool::~PagePool() { ADZE_CHECK(in_use() == 0, "{} pages of KV were never released", in_use()); }

Result<PageHandle> PagePool::take() {
  if (free_.empty()) {
    return fail(ErrorCode::out_of_memory, fmt::format("all {} pages of the KV cache are in use", capacity()),
                "end other requests, or load with a larger context");
  }
  const std::int32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  slot.references = 1;
  return PageHandle{.index = index, .generation = ++slot.generation};
}

const PagePool::Slot& PagePool::checked(PageHandle page) const {
  ADZE_CHECK(page.index >= 0 && page.index < capacity(), "page {} of {}", page.index, capacity());
  const Slot& slot = slots_[static_cast<std::size_t>(page.index)];
  ADZE_CHECK(slot.references > 0 && slot.generation == page.generation,
             "stale handle of page {}: generation {}, not {}", page.index, page.generation, slot.generation);
  return slot;
}

void PagePool::share(PageHandle page) {
  checked(page);
  ++slots_[static_cast<std::size_t>(page.index)].references;
}

void PagePool::release(PageHandle page) {
  checked(page);
  if (--slots_[static_cast<std::size_t>(page.index)].references == 0) free_.push_back(page.index);
}

int PagePool::references(PageHandle page) const { return checked(page).references; }

}  // namespace adze::cache
