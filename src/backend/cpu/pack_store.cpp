#include "backend/cpu/pack_store.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/pack_directory.hpp"
#include "base/check.hpp"

namespace adze::cpu {
namespace {

using backend::PackState;

// One write. A multiple of 2 MiB at a multiple of 2 MiB: file systems with large folios keep it as huge pages.
constexpr std::size_t kWriteBytes = 4u << 20;
// Written, and not yet on the disk: what a commit, and so whoever stops it, has to wait for.
constexpr std::uint64_t kDirtyBytes = 64u << 20;
// How often who waits looks up.
constexpr auto kGlance = std::chrono::milliseconds(50);
// How often a store asks for the right to pack while another process has it.
constexpr auto kLockRetry = std::chrono::milliseconds(200);

constexpr std::size_t kSampleBytes = 4096;

// The bytes in the middle, or all of fewer.
std::span<const std::byte> sample_of(std::span<const std::byte> source) {
  const std::size_t size = std::min(source.size(), kSampleBytes);
  return source.subspan((source.size() - size) / 2, size);
}

// Everything that decides what the packed bytes are. The digest of the source knows the files by their headers, sizes
// and times; where all times are the same (images of containers, stores of packages) the samples tell two models of one
// shape apart.
Digest key_of(const backend::PackOptions& options, std::string_view layout, std::span<const PackItem> items) {
  for (const PackItem& item : items) {  // the disk gets all reads at once
    for (const auto source : item.sources) prefetch_pages(sample_of(source));
  }
  std::string text = fmt::format("{} {}\n", to_hex(options.source), layout);
  for (const PackItem& item : items) {
    text += fmt::format("{} {} {} {}", item.name, item.type, item.group_bytes, item.groups);
    for (const auto source : item.sources)
      text += fmt::format(" {} {}", source.size(), to_hex(digest(sample_of(source))));
    text += '\n';
  }
  return digest(text);
}

// Leaves the thread what others leave of the processors. There is no way back for a user without privileges.
void step_back([[maybe_unused]] std::thread& thread) {
#ifdef SCHED_IDLE
  const sched_param none{};
  ::pthread_setschedparam(thread.native_handle(), SCHED_IDLE, &none);
#endif
}

Error stopped() { return {ErrorCode::cancelled, "packing was stopped", {}}; }

// Collects bytes and writes them in large pieces, the disk not far behind.
class PayloadWriter {
 public:
  PayloadWriter(AtomicFile& file, std::uint64_t offset, std::size_t largest_group)
      : file_(file), offset_(offset), flushed_(offset), capacity_(kWriteBytes + largest_group) {
    void* memory = ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    buffer_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  }
  PayloadWriter(const PayloadWriter&) = delete;
  PayloadWriter& operator=(const PayloadWriter&) = delete;
  ~PayloadWriter() {
    if (buffer_ != nullptr) ::munmap(buffer_, capacity_);
  }

  bool has_memory() const { return buffer_ != nullptr; }
  // Room for one group.
  std::byte* next() { return buffer_ + used_; }
  Status advance(std::size_t bytes) {
    used_ += bytes;
    return used_ >= kWriteBytes ? write(used_ / kWriteBytes * kWriteBytes) : Status();
  }
  Status finish() { return used_ > 0 ? write(used_) : Status(); }

 private:
  Status write(std::size_t bytes) {
    ADZE_TRY_STATUS(file_.write_at(offset_, {buffer_, bytes}));
    std::move(buffer_ + bytes, buffer_ + used_, buffer_);
    used_ -= bytes;
    offset_ += bytes;
    file_.write_back(offset_ - bytes, bytes, AtomicFile::WriteBack::begin);
    if (offset_ - flushed_ >= kDirtyBytes) {
      file_.write_back(flushed_, kDirtyBytes / 2, AtomicFile::WriteBack::wait);
      flushed_ += kDirtyBytes / 2;
    }
    return {};
  }

  AtomicFile& file_;
  std::uint64_t offset_;   // in the file, of the buffer's first byte
  std::uint64_t flushed_;  // all before is on the disk
  std::size_t capacity_;
  std::byte* buffer_;
  std::size_t used_ = 0;
};

}  // namespace

PackStore::PackStore(backend::PackOptions options, std::string_view layout, std::vector<PackItem> items)
    : options_(std::move(options)), items_(std::move(items)) {
  if (options_.directory.empty() || items_.empty()) return;
  header_.layout = layout;
  header_.model = options_.model;
  header_.sources = options_.files;
  for (const PackItem& item : items_) {
    ADZE_CHECK(item.group_bytes > 0 && item.group_bytes % backend::kPackAlignment == 0 && item.groups > 0,
               "'{}' has {} groups of {} bytes", item.name, item.groups, item.group_bytes);
    header_.entries.push_back(
        {.name = item.name, .group_bytes = item.group_bytes, .groups = static_cast<std::uint64_t>(item.groups)});
    packed_bytes_ += header_.entries.back().bytes();
  }
  if (Status laid_out = backend::lay_out(header_); !laid_out) {
    state_ = PackState::failed;
    error_ = std::move(laid_out.error());
    return;
  }
  for (const backend::PackEntry& entry : header_.entries) offsets_.push_back(entry.offset);
  header_.key = key_of(options_, layout, items_);
  path_ = backend::pack_path(options_.directory, header_.key);
  found_ = map_file();
  state_ = found_ ? PackState::ready : PackState::packing;
  if (found_) return;
  worker_ = std::thread([this] { work(); });
  step_back(worker_);
}

PackStore::~PackStore() {
  stopping_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

bool PackStore::map_file() {
  auto file = MappedFile::open(path_);
  if (!file) return false;
  const auto header = backend::parse_pack_header(file->bytes(), file->bytes().size());
  if (!header || header->key != header_.key || header->layout != header_.layout ||
      header->entries.size() != header_.entries.size()) {
    return false;
  }
  for (std::size_t i = 0; i < header->entries.size(); ++i) {
    const backend::PackEntry &there = header->entries[i], &here = header_.entries[i];
    if (there.name != here.name || there.group_bytes != here.group_bytes || there.groups != here.groups) return false;
    offsets_[i] = there.offset;  // of a file that was made for the same model under a longer path
  }
  backend::mark_used(path_);
  file_ = std::move(*file);
  payload_.store(file_.bytes().data(), std::memory_order_release);
  return true;
}

void PackStore::work() {
  Status made = make_file();
  const std::lock_guard lock(mutex_);
  state_ = made ? PackState::ready : PackState::failed;
  if (!made) error_ = std::move(made.error());
  changed_.notify_all();
}

Status PackStore::make_file() {
  std::optional<backend::PackDirectoryLock> lock;
  for (;;) {
    ADZE_TRY(lock, backend::PackDirectoryLock::try_lock(options_.directory));
    // Somebody else may have made it: while this one waited, or on a file system without locks.
    if (map_file()) return {};
    if (lock) break;
    std::unique_lock wait(mutex_);
    changed_.wait_for(wait, kLockRetry, [this] { return stop_requested(); });
    if (stop_requested()) return tl::unexpected(stopped());
  }
  ADZE_TRY_STATUS(backend::make_room(path_, header_.file_bytes, options_.budget_bytes));
  ADZE_TRY(AtomicFile file, AtomicFile::create(path_, AtomicFile::Replace::name));
  ADZE_TRY_STATUS(write_payload(file));
  const std::string header = backend::serialise(header_);
  ADZE_TRY_STATUS(file.write_at(0, std::as_bytes(std::span(header))));
  for (const backend::PackSource& source : options_.files) {
    const auto now = backend::describe_source(source.path);
    if (!now || now->bytes != source.bytes || now->modified_ns != source.modified_ns) {
      return fail(ErrorCode::io, fmt::format("'{}' was changed while its weights were packed", source.path.string()),
                  "start again once it is whole");
    }
  }
  ADZE_TRY_STATUS(file.commit());
  if (map_file()) return {};
  return fail(ErrorCode::io, fmt::format("'{}' cannot be read back", path_.string()),
              "check the disk and the folder's permissions, or switch packs off");
}

struct PackStore::Payload {
  PayloadWriter out;
  std::size_t item = 0;
  std::vector<Digest> groups{};  // of the item, as far as they are written
};

Status PackStore::write_payload(AtomicFile& file) {
  std::uint64_t largest = 0;
  for (const PackItem& item : items_) largest = std::max(largest, item.group_bytes);
  Payload payload{.out = PayloadWriter(file, header_.payload_offset, largest)};
  if (!payload.out.has_memory()) return fail(ErrorCode::out_of_memory, "there is no memory to pack weights in");
  for (;;) {
    ADZE_TRY_STATUS(write_groups(payload, [this] { return !waited_for_.load(std::memory_order_relaxed); }));
    if (payload.item == items_.size()) return payload.out.finish();
    std::unique_lock lock(mutex_);
    lent_ = &payload;
    changed_.notify_all();
    // Who waited may have left before it could be lent.
    changed_.wait(lock, [this] { return lent_ == nullptr || !waited_for_.load(std::memory_order_relaxed); });
    lent_ = nullptr;
    if (error_) return tl::unexpected(*error_);
  }
}

template <class GoOn>
Status PackStore::write_groups(Payload& payload, GoOn go_on) {
  for (; payload.item < items_.size(); ++payload.item) {
    const PackItem& item = items_[payload.item];
    while (payload.groups.size() < static_cast<std::size_t>(item.groups)) {
      if (stop_requested()) return tl::unexpected(stopped());
      if (!go_on()) return {};
      std::byte* group = payload.out.next();
      item.pack(static_cast<int>(payload.groups.size()), group);
      payload.groups.push_back(digest(std::span(group, item.group_bytes)));
      ADZE_TRY_STATUS(payload.out.advance(item.group_bytes));
      done_bytes_.fetch_add(item.group_bytes, std::memory_order_relaxed);
    }
    header_.entries[payload.item].content = digest(std::as_bytes(std::span(payload.groups)));
    payload.groups.clear();
  }
  return {};
}

backend::PackReport PackStore::report() const {
  const std::lock_guard lock(mutex_);
  return {.state = state_,
          .found = found_,
          .done_bytes = state_ == PackState::ready ? packed_bytes_ : done_bytes_.load(std::memory_order_relaxed),
          .total_bytes = packed_bytes_,
          .path = path_,
          .error = error_};
}

void PackStore::wait(const backend::PackProgress& go_on) {
  std::unique_lock lock(mutex_);
  waited_for_.store(true, std::memory_order_relaxed);
  bool patient = true;
  while (patient && state_ == PackState::packing) {
    Payload* payload = lent_;
    lock.unlock();
    Status written;
    if (payload != nullptr) {
      const auto until = std::chrono::steady_clock::now() + kGlance;
      written = write_groups(*payload, [until] { return std::chrono::steady_clock::now() < until; });
    }
    patient = go_on(done_bytes_.load(std::memory_order_relaxed), packed_bytes_);
    lock.lock();
    if (!written) error_ = std::move(written.error());
    if (error_ || (payload != nullptr && payload->item == items_.size())) {
      lent_ = nullptr;  // the end is for the thread in the background
      waited_for_.store(false, std::memory_order_relaxed);
      changed_.notify_all();
    }
    if (lent_ == nullptr) {
      changed_.wait_for(lock, kGlance, [this] { return state_ != PackState::packing || lent_ != nullptr; });
    }
  }
  waited_for_.store(false, std::memory_order_relaxed);
  changed_.notify_all();
}

}  // namespace adze::cpu
