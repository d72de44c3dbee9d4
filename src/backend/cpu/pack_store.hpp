// The packed weights of one engine: mapped from a pack file where there is one, else made in the background while the
// engine computes with the weights as the model's file has them. Both give the same bits, so the change may come
// between any two forward passes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/pack_file.hpp"
#include "backend/packs.hpp"
#include "base/file.hpp"
#include "base/result.hpp"

namespace adze::cpu {

// One weight as its kernels read it: groups that are each made from the source by themselves.
struct PackItem {
  std::string name, type;                           // of the tensor
  std::vector<std::span<const std::byte>> sources;  // its bytes in the mapped model (values, and scales beside them)
  std::uint64_t group_bytes = 0;                    // a multiple of 64
  int groups = 0;
  // Writes group_bytes bytes, all of them, to `out`, which is aligned to 64. Called on a thread of the store's own, or
  // on one that waits for it.
  std::function<void(int group, std::byte* out)> pack;
};

class PackStore {
 public:
  // `layout` names the order of bytes, the width of its groups and its version included: with the items' names, sizes
  // and sources and the options' source it decides which file is theirs. What goes wrong is told by report(): there
  // are always the unpacked weights.
  PackStore(backend::PackOptions options, std::string_view layout, std::vector<PackItem> items);
  PackStore(const PackStore&) = delete;
  PackStore& operator=(const PackStore&) = delete;
  ~PackStore();  // stops what goes on in the background, and leaves no half of a file

  // From true on, for ever, packed() has the weights.
  bool ready() const { return payload_.load(std::memory_order_acquire) != nullptr; }
  // The groups of an item, one behind the other, aligned to 64; they live as long as the store.
  const std::byte* packed(std::size_t item) const { return payload_.load(std::memory_order_acquire) + offsets_[item]; }
  std::uint64_t packed_bytes() const { return packed_bytes_; }  // of all items

  backend::PackReport report() const;
  // Returns when nothing is packed any more, or go_on was false. The calling thread does the work meanwhile: the one in
  // the background gets only what others leave, and may not change that. One caller at a time.
  void wait(const backend::PackProgress& go_on);

 private:
  struct Payload;  // half-written

  bool map_file();  // where there is a valid one
  void work();
  Status make_file();
  Status write_payload(AtomicFile& file);
  // Goes on until all is written or go_on says no.
  template <class GoOn>
  Status write_groups(Payload& payload, GoOn go_on);
  bool stop_requested() const { return stopping_.load(std::memory_order_relaxed); }

  const backend::PackOptions options_;
  const std::vector<PackItem> items_;
  backend::PackHeader header_;  // without the checksums, but while it is written
  std::filesystem::path path_;
  std::uint64_t packed_bytes_ = 0;
  std::vector<std::uint64_t> offsets_;  // of the items, in the file

  MappedFile file_;
  std::atomic<const std::byte*> payload_{nullptr};  // the file's first byte, once it is mapped
  std::atomic<bool> stopping_{false}, waited_for_{false};
  std::atomic<std::uint64_t> done_bytes_{0};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  backend::PackState state_ = backend::PackState::off;
  bool found_ = false;
  std::optional<Error> error_;
  Payload* lent_ = nullptr;  // to wait(), by the thread in the background
  std::thread worker_;
};

}  // namespace adze::cpu
