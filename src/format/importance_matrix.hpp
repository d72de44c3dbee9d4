// An importance matrix: for each matrix of a model, how large its inputs were on some text, column by column. Made by
// `adze imatrix` and llama.cpp's llama-imatrix, read when a model is quantised; either program reads the other's files.
//
// The file is a GGUF without a model: general.type "imatrix", imatrix.datasets, imatrix.chunk_count,
// imatrix.chunk_size, and per matrix NAME two F32 tensors, NAME.in_sum2 [matrices, columns] (sums of squares) and
// NAME.counts [matrices, 1] (rows that were summed). The older form (.dat) is a plain list of records; it keeps means
// times a number of chunks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "tensor/view.hpp"

namespace adze::format {

struct InputStatistics {
  std::vector<float> sums;    // [matrices, columns] of squares
  std::vector<float> counts;  // [matrices], or one for all of them
  // Sums over counts; 1 for every column of a matrix (an expert) that saw no row.
  std::vector<float> mean_squares() const;
};

struct ImportanceMatrix {
  std::map<std::string, InputStatistics, std::less<>> entries;  // by the weight's name in GGUF
  std::vector<std::string> datasets;
  std::uint32_t chunk_count = 0;
  std::uint32_t chunk_size = 0;  // tokens; 0: an older file, which counts in chunks

  // Errors: not_found, io, not_a_model (no importance matrix), corrupt_file (truncated, sums without counts, another
  // number of them, a negative or non-finite sum).
  static Result<ImportanceMatrix> open(const std::filesystem::path& path);
  // Errors: io, disk_full, corrupt_file for what open would refuse; the name holds the old file or the whole new one.
  Status write(const std::filesystem::path& path) const;
  // Adds what another text gave. Errors: invalid_argument when the sizes of an entry differ.
  Status add(const ImportanceMatrix& other);

  // Mean squares for a tensor; empty when there is no entry for it. Errors: invalid_argument when the entry has another
  // size than [matrices, columns] of the tensor.
  Result<std::vector<float>> weights_for(std::string_view name, const tensor::Shape& shape) const;
};

}  // namespace adze::format
