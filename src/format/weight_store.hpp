// The owner of a model's bytes: everything else holds views. It hands out tensors by name, checks them against the
// shape that the model expects, and knows which ones nobody asked for. Loading is one thread's work; afterwards reading
// is safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "format/gguf.hpp"

namespace adze::format {

class WeightStore {
 public:
  // Errors: those of GgufFile::open.
  static Result<WeightStore> open(const std::filesystem::path& path, MapOptions options = {});
  explicit WeightStore(GgufFile file);

  const GgufFile& file() const { return file_; }
  const Metadata& metadata() const { return file_.metadata(); }
  std::span<const GgufTensor> tensors() const { return file_.tensors(); }
  std::uint64_t tensor_bytes() const { return file_.tensor_bytes(); }

  // Looks only; does not count as taken.
  const tensor::TensorView* find(std::string_view name) const;
  // The tensor, taken, if it is there and has this shape; outer dimensions of 1 may be there or not. `why` names the
  // metadata keys that imply the shape, e.g. "llama.embedding_length, llama.attention.head_count". Errors: corrupt_file
  // (missing, or another shape).
  Result<const tensor::TensorView*> require(std::string_view name, const tensor::Shape& expected, std::string_view why);
  // The same for a tensor that a model may leave out: null when it is absent.
  Result<const tensor::TensorView*> optional(std::string_view name, const tensor::Shape& expected,
                                             std::string_view why);

  // Tensors that were never taken, in file order: the model said nothing about them, and their pages stay untouched.
  std::vector<std::string_view> unused() const;
  std::uint64_t taken_bytes() const;

  // Identity of the weights for cache keys, without reading them: XXH3 over every shard's header bytes (which hold all
  // names, shapes, types and offsets), its size and its modification time. A copy of a file with another time is
  // another source: that costs a cache miss, never a wrong hit short of a tool that rewrites weights in place and
  // restores the time.
  Digest source_digest() const { return digest_; }

 private:
  GgufFile file_;
  std::vector<bool> taken_;  // parallel to file_.tensors()
  Digest digest_;
};

// "[64, 31]"
std::string format_shape(const tensor::Shape& shape);

}  // namespace adze::format
