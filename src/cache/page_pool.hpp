// Who holds which page of KV. The bytes belong to the backend; a page here is an index into them with a reference
// count. Handles carry a generation, so one that outlived its page is caught instead of reading another request's KV.
// Not thread-safe: the engine's thread owns it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"

namespace adze::cache {

struct PageHandle {
  std::int32_t index = -1;  // what the backend calls the page
  std::uint32_t generation = 0;
  bool operator==(const PageHandle&) const = default;
};

class PagePool {
 public:
  explicit PagePool(std::int32_t pages);
  // An idle engine holds no pages: destroying a pool with pages in use is our bug.
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  std::int32_t capacity() const { return static_cast<std::int32_t>(slots_.size()); }
  std::int32_t in_use() const { return capacity() - available(); }
  std::int32_t available() const { return static_cast<std::int32_t>(free_.size()); }

  // A page with one reference. Errors: out_of_memory.
  Result<PageHandle> take();
  // One more reference to a page in use.
  void share(PageHandle page);
  // One reference less; the last one frees the page. Freed pages are handed out again first, while their bytes are
  // warm.
  void release(PageHandle page);
  int references(PageHandle page) const;

 private:
  struct Slot {
    std::uint32_t generation = 0;
    std::int32_t references = 0;
  };
  const Slot& checked(PageHandle page) const;

  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_;  // a stack
};

}  // namespace adze::cache
