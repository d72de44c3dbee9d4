// One sequence's pages of one group, in the order of positions. An entry that was released stays, as -1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.hpp"

namespace adze::cache {

// Each entry is one reference to its page. Movable; whoever owns the list empties it (its pages' last holder is told).
class PageList {
 public:
  explicit PageList(PagePool& pool) : pool_(&pool) {}

  std::size_t size() const { return pages_.size(); }
  std::span<const std::int32_t> indices() const { return indices_; }
  PageHandle at(std::size_t i) const { return pages_[i]; }
  bool has(std::size_t i) const { return i < pages_.size() && pages_[i].index >= 0; }
  int references(std::size_t i) const { return pool_->references(pages_[i]); }

  // Takes over one reference; PageHandle{} for an entry that was released already.
  void push(PageHandle page) {
    pages_.push_back(page);
    indices_.push_back(page.index);
  }
  void push_shared(PageHandle page) {
    pool_->share(page);
    push(page);
  }
  // The entry becomes `page`, whose reference is taken over.
  void replace(std::size_t i, PageHandle page) {
    if (has(i)) pool_->release(pages_[i]);
    pages_[i] = page;
    indices_[i] = page.index;
  }
  void release(std::size_t i) { replace(i, {}); }
  void pop() {
    release(size() - 1);
    pages_.pop_back();
    indices_.pop_back();
  }

 private:
  PagePool* pool_;
  std::vector<PageHandle> pages_;
  std::vector<std::int32_t> indices_;  // of pages_
};

}  // namespace adze::cache
