#include "cache/page_table.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/check.hpp"

namespace adze::cache {
namespace {

std::int64_t pages_for(std::int64_t positions, int page_tokens) { return (positions + page_tokens - 1) / page_tokens; }

}  // namespace

PageTable::PageTable(PagePool& pool, int page_tokens) : pool_(&pool), page_tokens_(page_tokens) {
  ADZE_CHECK(page_tokens > 0, "{} positions per page", page_tokens);
}

PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_),
      page_tokens_(other.page_tokens_),
      length_(std::exchange(other.length_, 0)),
      pages_(std::exchange(other.pages_, {})),
      indices_(std::exchange(other.indices_, {})) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this != &other) {
    truncate(0);
    pool_ = other.pool_;
    page_tokens_ = other.page_tokens_;
    length_ = std::exchange(other.length_, 0);
    pages_ = std::exchange(other.pages_, {});
    indices_ = std::exchange(other.indices_, {});
  }
  return *this;
}

PageTable::~PageTable() { truncate(0); }

Status PageTable::reserve(std::int64_t length) {
  const auto have = static_cast<std::int64_t>(pages_.size());
  const std::int64_t need = pages_for(length, page_tokens_) - have;
  if (need > pool_->available()) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("{} positions need {} more pages of KV, but only {} of {} are free", length, need,
                            pool_->available(), pool_->capacity()),
                "end other requests, or load with a larger context");
  }
  for (std::int64_t i = 0; i < need; ++i) {
    ADZE_TRY(const PageHandle page, pool_->take());
    pages_.push_back(page);
    indices_.push_back(page.index);
  }
  return {};
}

void PageTable::append(std::int64_t positions) {
  ADZE_CHECK(positions >= 0 && length_ + positions <= room(), "{} positions appended at {}, room for {}", positions,
             length_, room());
  length_ += positions;
}

void PageTable::truncate(std::int64_t length) {
  ADZE_CHECK(length >= 0 && length <= length_, "truncated to {} of {} positions", length, length_);
  length_ = length;
  const auto keep = static_cast<std::size_t>(pages_for(length, page_tokens_));
  while (pages_.size() > keep) {
    pool_->release(pages_.back());
    pages_.pop_back();
    indices_.pop_back();
  }
}

PageTable PageTable::fork(std::int64_t length) const {
  ADZE_CHECK(length >= 0 && length <= length_, "forked at {} of {} positions", length, length_);
  PageTable copy(*pool_, page_tokens_);
  const auto full = static_cast<std::size_t>(length / page_tokens_);
  for (std::size_t i = 0; i < full; ++i) {
    pool_->share(pages_[i]);
    copy.pages_.push_back(pages_[i]);
    copy.indices_.push_back(pages_[i].index);
  }
  copy.length_ = static_cast<std::int64_t>(full) * page_tokens_;
  return copy;
}

}  // namespace adze::cache
