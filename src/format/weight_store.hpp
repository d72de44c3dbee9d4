// The owner of a model's bytes, a GGUF file or a Hugging Face folder: everything else holds views. It hands out tensors
// by the names of its own format, checks them against the shape that the model expects, and knows which ones nobody
// asked for. Loading is one thread's work; afterwards reading is safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "format/gguf.hpp"
#include "format/mlx_quantisation.hpp"
#include "format/safetensors_folder.hpp"

namespace adze::format {

enum class StoreFormat : std::uint8_t { gguf, safetensors };

class WeightStore {
 public:
  // A GGUF file. Errors: those of GgufFile::open.
  static Result<WeightStore> open(const std::filesystem::path& path, MapOptions options = {});
  explicit WeightStore(GgufFile file);
  // A folder's tensors, and what its JSON files say as the bytes of a GGUF file without tensors, which the store keeps.
  // A weight that MLX quantised is one tensor of the store. Errors: those of GgufFile::parse.
  static Result<WeightStore> from_folder(SafetensorsFolder folder, std::string metadata,
                                         std::optional<MlxQuantisation> mlx = std::nullopt);

  StoreFormat format() const { return folder_ ? StoreFormat::safetensors : StoreFormat::gguf; }
  const Metadata& metadata() const { return file_.metadata(); }
  std::string_view architecture() const { return file_.architecture(); }
  // The file (of a split: the first shard) or the folder; empty when parsed from memory.
  const std::filesystem::path& path() const;
  std::uint64_t file_bytes() const;
  std::vector<std::filesystem::path> weight_files() const;           // the shards
  const SafetensorsFolder* folder() const { return folder_.get(); }  // null for GGUF
  const GgufFile& gguf() const { return file_; }                     // of a folder: its metadata, without tensors
  const std::optional<MlxQuantisation>& mlx() const { return mlx_; }

  std::span<const tensor::TensorView> tensors() const { return views_; }  // file order; bytes at any address
  std::uint64_t tensor_bytes() const;

  // Looks only; does not count as taken.
  const tensor::TensorView* find(std::string_view name) const;
  // The tensor, taken, with this shape, which it must have apart from dimensions of 1, and with these columns if they
  // are blocks or codes. `why` names the metadata keys
  // that imply the shape, e.g. "llama.embedding_length, llama.attention.head_count". Errors: corrupt_file (missing, or
  // another shape); unsupported_type, unsupported_feature for a tensor that is no weight (8-bit floats, five
  // dimensions).
  Result<const tensor::TensorView*> require(std::string_view name, const tensor::Shape& expected, std::string_view why);
  // The same for a tensor that a model may leave out: null when it is absent.
  Result<const tensor::TensorView*> optional(std::string_view name, const tensor::Shape& expected,
                                             std::string_view why);

  // The bytes of a folder's tensor that is one part of a weight (codes, scales), taken: by its element type as
  // safetensors spells it. Errors: corrupt_file (missing, or of another type or shape).
  Result<std::span<const std::byte>> require_part(std::string_view name, std::string_view element_type,
                                                  const tensor::Shape& expected, std::string_view why);

  // Tensors that were never taken, in file order: the model said nothing about them, and their pages stay untouched.
  std::vector<std::string_view> unused() const;
  std::uint64_t taken_bytes() const;
  // Gives the pages of a vocabulary that has been read back to the system, where the file holds one. A hint.
  void release_headers() const;
  // The same for a folder's tensor that has been read for good, with its scales and biases. Nothing for GGUF.
  void release_tensor(std::string_view name) const;
  // The same for all bytes of the files.
  void release_all() const;
  // Copies bytes of a mapped file without touching the map (MappedFile::read).
  bool read(const std::byte* at, std::span<std::byte> into) const;

  // Takes taken vectors of at most 64 KiB (norms, biases) into memory of its own, kMaxHeldTensorBytes at most, so that
  // whoever has the large ones elsewhere need not touch the map at a hundred places. Views that were copied before keep
  // to the map.
  void hold_vectors();

  // Identity of the weights for cache keys, without reading them: XXH3 over every shard's header bytes (which hold all
  // names, shapes, types and offsets), its size and its modification time, and over the metadata of a folder. A copy of
  // a file with another time is another source: that costs a cache miss, never a wrong hit short of a tool that
  // rewrites weights in place and restores the time.
  Digest source_digest() const { return digest_; }

 private:
  WeightStore() = default;
  void add(Result<tensor::TensorView> view, const SafetensorsTensor& tensor);
  void index();  // fills by_name_ and taken_

  GgufFile file_;  // of a folder: the metadata only
  std::unique_ptr<const std::string> metadata_bytes_;
  std::unique_ptr<const SafetensorsFolder> folder_;
  std::optional<MlxQuantisation> mlx_;
  std::vector<tensor::TensorView> views_;
  std::vector<std::pair<std::uint32_t, Error>> no_weights_;  // views that cannot be used, and why; by index
  std::vector<std::uint32_t> by_name_;                       // indexes into views_, sorted by name
  std::vector<bool> taken_;                                  // parallel to views_
  std::unique_ptr<std::byte[]> held_;                        // vectors
  Digest digest_;
};

// "[64, 31]"
std::string format_shape(const tensor::Shape& shape);

}  // namespace adze::format
