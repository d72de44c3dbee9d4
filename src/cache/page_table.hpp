// The KV of one sequence: a list of pages and a length. Page i holds positions [i * page_tokens, (i + 1) *
// page_tokens). Rollback moves the length back and releases the pages behind it. Movable; releases everything when
// destroyed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.hpp"

namespace adze::cache {

class PageTable {
 public:
  // The pool outlives the table.
  PageTable(PagePool& pool, int page_tokens);
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;
  ~PageTable();

  // Positions whose K and V are stored.
  std::int64_t length() const { return length_; }
  // Positions that the pages can hold.
  std::int64_t room() const { return static_cast<std::int64_t>(pages_.size()) * page_tokens_; }
  // Page indices for the backend; they cover room().
  std::span<const std::int32_t> indices() const { return indices_; }

  // Makes room for positions below `length`, each page that is written to held by this table alone. Errors:
  // out_of_memory, with need and have; then nothing has changed.
  Status reserve(std::int64_t length);
  // `positions` more of the room hold K and V now.
  void append(std::int64_t positions);
  // Forgets the positions from `length` on and releases the pages that held only those.
  void truncate(std::int64_t length);

  // A table that shares this one's full pages below `length`: its own length is that, rounded down to a page's edge, so
  // that neither writes into a shared page.
  PageTable fork(std::int64_t length) const;

 private:
  PagePool* pool_;
  int page_tokens_;
  std::int64_t length_ = 0;
  std::vector<PageHandle> pages_;
  std::vector<std::int32_t> indices_;  // of pages_
};

}  // namespace adze::cache
