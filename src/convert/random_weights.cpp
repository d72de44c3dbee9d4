#include "convert/random_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>

#include "base/hash.hpp"

namespace adze::convert {
namespace {

constexpr std::int64_t kPieceValues = 256;
constexpr std::uint64_t kPieces = 256;  // of a pool; a power of two
constexpr std::size_t kSinkBytes = std::size_t{4} << 20;

// SplitMix64 (Steele, Lea, Flood 2014): a stream from a start, whatever machine runs it.
class Stream {
 public:
  explicit Stream(std::uint64_t start) : state_(start) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }
  // Mean 0, variance 1: a sum of eight uniform values, which needs no logarithm and so no library's rounding.
  float normal() {
    float sum = -4.0f;
    for (int i = 0; i < 8; ++i) sum += uniform();
    return sum * 1.22474487f;  // the sum's variance is 8 / 12
  }

 private:
  std::uint64_t state_;
};

// What a vector holds, by what it is called.
float vector_value(std::string_view name, Stream& random) {
  if (name.ends_with("ssm_a")) return -(0.5f + 7.5f * random.uniform());      // -exp(A_log)
  if (name.ends_with("ssm_dt.bias")) return -7.0f + 5.0f * random.uniform();  // steps of 0.001 to 0.1
  if (name.ends_with(".bias") || name.ends_with("attn_sinks.weight")) return 0.02f * random.normal();
  return 1.0f + 0.05f * random.normal();
}

}  // namespace

const RandomWeights::Pool& RandomWeights::pool(tensor::DType type, std::int64_t columns) {
  const auto [place, is_new] = pools_.try_emplace({type, columns});
  Pool& pool = place->second;
  if (!is_new) return pool;
  const std::int64_t block = tensor::dtype_info(type).block_elements;
  pool.piece_values = columns % kPieceValues == 0 ? kPieceValues : std::gcd(columns, std::max<std::int64_t>(block, 32));
  pool.piece_bytes = tensor::row_bytes(type, pool.piece_values);
  pool.bytes.resize(kPieces * pool.piece_bytes);
  Stream random(seed_ ^ (static_cast<std::uint64_t>(type) << 56) ^ static_cast<std::uint64_t>(columns));
  const float deviation = 1.0f / std::sqrt(static_cast<float>(columns));
  std::vector<float> values(static_cast<std::size_t>(pool.piece_values));
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    for (float& value : values) value = deviation * random.normal();
    tensor::quantise_row(type, values.data(), pool.bytes.data() + piece * pool.piece_bytes, pool.piece_values);
  }
  return pool;
}

Status RandomWeights::produce(const OutTensor& tensor, tensor::DType type, const format::TensorSink& sink) {
  Stream random(seed_ ^ digest(tensor.name).low);
  if (!tensor.values.empty()) return sink(std::as_bytes(std::span(tensor.values)));
  const std::int64_t elements = tensor.shape.elements();
  if (tensor.vector) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    for (float& value : values) value = vector_value(tensor.name, random);
    return sink(std::as_bytes(std::span(values)));
  }
  const tensor::TensorView view{tensor.name, type, tensor.shape, {}};
  const Pool& from = pool(type, view.columns());
  const std::int64_t pieces = elements / from.piece_values;
  const auto at_once = std::max<std::int64_t>(static_cast<std::int64_t>(kSinkBytes / from.piece_bytes), 1);
  std::vector<std::byte> out;
  for (std::int64_t done = 0; done < pieces; done += at_once) {
    const std::int64_t count = std::min(at_once, pieces - done);
    out.resize(static_cast<std::size_t>(count) * from.piece_bytes);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t piece = random.bits() % kPieces;
      std::memcpy(out.data() + static_cast<std::size_t>(i) * from.piece_bytes,
                  from.bytes.data() + piece * from.piece_bytes, from.piece_bytes);
    }
    ADZE_TRY_STATUS(sink(out));
  }
  return {};
}

}  // namespace adze::convert
