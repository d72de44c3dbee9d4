// The kernels of one instruction set, as plain functions over plain memory. Each isa/ source exports one constexpr
// table; all tables give the same bits. Included by isa/ sources: no inline functions, no standard containers, so that
// code built for a wide instruction set can never be picked up by the rest of the program.
//
// Layouts (T rows of activations; K inputs; every float row is padded with zeros to a multiple of 16):
//   float activations      float [T][ld]
//   int8 activations       blocks of 32 or 256 values: quants, scale, sums, interleaved by tile (QuantisedRows)
//   K cache page           [kv_head][page / 16][head_size][16]: 16 positions side by side
//   V cache page           [kv_head][page][head_size padded to 16]
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace adze::cpu {

inline constexpr int kGroupRows = 16;   // output rows that one kernel step computes: the lanes of a vector
inline constexpr int kPageTokens = 64;  // positions of a KV page (backend::kPageTokens)
inline constexpr int kPartition = 256;  // positions that share one softmax before they are merged in order
inline constexpr int kMaxQueries = 48;  // query vectors that one attention call walks the cache with

// Functions of this header are static: an inline one could be emitted by an isa/ source and picked up by everybody.
static constexpr int padded16(int n) { return (n + 15) / 16 * 16; }

// Activations rounded to int8. Blocks of 32: q = round(127 x / max|x|), scale = max|x| / 127 rounded to float16.
// Blocks of 256: scale in float32. Rows are grouped in tiles of near-equal size n <= max_tile (tile_of); inside a tile
// everything is interleaved by row, so that a kernel reads one contiguous stream:
//   quants [K / 4][n][4]   scales, scaled_sums [K / block][n]   sums [K / 32 or K / 16][n]
// and a tile that starts at row r begins at r times the row's size.
struct QuantisedRows {
  std::int8_t* quants;
  float* scales;
  float* scaled_sums;  // scale * sum of the block's quants; blocks of 32 only
  // Of the quants. Blocks of 32: of each block. Blocks of 256: 16 dwords, of which 8 hold the sums of 16 quants, in
  // pairs of 16-bit halves, and 4 those of 32.
  std::int32_t* sums;
};

// Tile `index` of `rows` rows cut into near-equal tiles of at most max_tile.
struct Tile {
  int first, count;
};
static constexpr int tile_count(int rows, int max_tile) { return (rows + max_tile - 1) / max_tile; }
static constexpr Tile tile_at(int index, int rows, int max_tile) {
  const int tiles = tile_count(rows, max_tile), size = rows / tiles, extra = rows % tiles;
  return {index * size + (index < extra ? index : extra), size + (index < extra ? 1 : 0)};
}
static constexpr Tile tile_of(int row, int rows, int max_tile) {
  const int tiles = tile_count(rows, max_tile), size = rows / tiles, extra = rows % tiles;
  const int large = extra * (size + 1);
  return tile_at(row < large ? row / (size + 1) : extra + (row - large) / size, rows, max_tile);
}

using DequantiseFn = void (*)(const std::byte* blocks, float* out, std::size_t block_count);

// out[t][r] (+)= sum_k W[r][k] x[t][k] + bias[r] for rows in [16 * group_begin, 16 * group_end) and t < tokens.
struct MatmulArgs {
  const std::byte* weights;  // [rows] of `row_stride` bytes
  std::size_t row_stride;
  const std::byte* packed;     // the same rows in the packed layout, 64-byte aligned; or null, and `weights` are read
  std::size_t ahead;           // of a packed stream, bytes that are fetched before they are needed
  tensor::GroupScales groups;  // of codes: from the first of the rows on
  std::size_t scale_stride;    // bytes from one row's scales to the next one's
  int rows, k;
  const float* bias;        // [rows] or null
  QuantisedRows quantised;  // int8 kernels
  const float* floats;      // float kernels: [T][ld_floats]
  std::size_t ld_floats;
  int tokens;
  int max_tile;  // rows of activations to a tile, as `quantised` was made: at most the table's
  float* out;    // [T][ld_out]
  std::size_t ld_out;
  bool accumulate;          // add to out instead of storing
  DequantiseFn dequantise;  // float kernels of block types
  int block_elements, block_bytes;
  std::byte* panel;  // scratch of this thread, 64-byte aligned, panel_bytes(k, row_stride) long
};

enum class GatedActivation : std::uint8_t { silu, gelu_tanh, swiglu_oai };  // as ops::Activation

struct MatmulKernel {
  const char* name;  // null: this table has no such kernel
  void (*run)(const MatmulArgs& args, int group_begin, int group_end);
  // out = act(gate) * up; each gives its weights, inputs, bias and panel; tokens, tiles and `out` are those of `gate`.
  void (*gated)(const MatmulArgs& gate, const MatmulArgs& up, GatedActivation act, int group_begin, int group_end);
  std::size_t (*panel_bytes)(int k, std::size_t row_stride);
  // The packed layout (kernels/packed.inl.h), the same for every table: bytes of a group of 16 rows, a multiple of 64,
  // and how one is made from the weights of `from`, whose panel is used as well. Null: this product reads files only.
  std::size_t (*packed_bytes)(int k, const tensor::GroupScales& groups);
  void (*pack)(const MatmulArgs& from, int group, std::byte* out);
  int activation_block;  // 32 or 256: which int8 activations it reads; 0: floats
};

enum class KvFormat : std::uint8_t { f32, f16, q8_0 };

// Up to kMaxQueries query vectors of one KV head against the positions [begin, begin + count) of one partition.
struct AttendArgs {
  KvFormat format;
  int head_size;
  const std::byte* const* key_pages;  // per page of the partition, already at this KV head; partition / page entries
  const std::byte* const* value_pages;
  const std::byte* next_keys;  // the keys that are read after this partition, or any others
  int begin;                   // position of the partition's start, a multiple of kPartition
  int count;                   // positions in it, 1..kPartition
  int first_page;              // of the partition; no query sees those before it, and they are not touched
  int queries;
  const float* query[kMaxQueries];            // [head_size], scaled by the caller's scale below
  int first[kMaxQueries], last[kMaxQueries];  // visible positions, inclusive; first > last: none
  float scale, softcap;
  float* out[kMaxQueries];  // [head_size padded to 16]: sum of p * v
  float* maximum;           // [queries]
  float* denominator;       // [queries]
  float* scores;            // scratch [queries][kPartition]
  float* unpacked;          // scratch [kPageTokens][head_size padded to 16]
};

struct RopeTable {  // one row: cos and sin of its position
  const float* cosine;
  const float* sine;
  int dims;
  bool interleaved;
};

// Rows of one sequence through some columns of one value head's state.
struct DeltaScanArgs {
  // [key_size][state_stride], at the first of the columns; the columns padded to 16. The state after the rows is left
  // in `next`, where that is `state`; elsewhere `next` is scratch, and `state` stays as it is.
  const float* state;
  float* next;
  std::size_t state_stride;
  int key_size, columns, rows;
  const float *q, *k, *v, *decay, *beta;  // of the first row
  std::size_t row_stride;                 // floats from one row's to the next one's
  float* out;                             // [rows][columns]
  std::size_t out_stride;
};

// Loops that do nothing but read, or nothing but multiply (kernels/limits.inl.h): what no kernel gets past.
struct LimitKernels {
  std::int32_t (*read_all)(const std::byte* begin, std::size_t bytes);  // bytes: a multiple of 256
  // The number of multiply-adds done. Both read 16 operands; bytes of 0..127 in the first. `out` has 16 values.
  std::int64_t (*multiply_bytes)(const std::int32_t* operands, std::int64_t rounds, float* out);
  std::int64_t (*multiply_floats)(const float* operands, std::int64_t rounds, float* out);
};

struct KernelTable {
  const char* name;
  LimitKernels limits;

  // Matrix products by weight type (index: tensor::DType). int8_kernels: quantised weights with int8 activations.
  MatmulKernel int8_kernels[32];
  MatmulKernel float_kernels[32];

  int max_tile;  // rows of activations that one kernel step multiplies
  // Row `row` of a batch whose tile is `tile`; n is a multiple of the block.
  void (*quantise32)(const float* x, int n, const QuantisedRows& out, int row, Tile tile);
  void (*quantise256)(const float* x, int n, const QuantisedRows& out, int row, Tile tile);

  // y = x / sqrt(mean x^2 + eps) * w; weight may be null; one_plus multiplies by 1 + w.
  void (*rms_norm)(const float* x, const float* weight, bool one_plus, float eps, int n, float* y);
  void (*layer_norm)(const float* x, const float* weight, bool one_plus, float eps, int n, float* y);
  void (*rope)(float* head, const RopeTable& table);
  void (*add)(float* y, const float* x, int n);                                   // y += x
  void (*add_scaled)(float* y, const float* x, float factor, int n);              // y += factor * x, one rounding
  void (*scale)(float* y, float factor, int n);                                   // y *= factor
  void (*softcap)(float* y, float cap, int n);                                    // y = tanh(y / cap) * cap
  void (*gate)(float* gate_to_out, const float* up, GatedActivation act, int n);  // act(gate) * up
  // maxima[i] = the largest of x[64 i .. 64 i + 63], fewer at the end. False when one of the n is not finite, and then
  // the maxima mean nothing.
  bool (*block_maxima)(const float* x, int n, float* maxima);

  // One position of one KV head: `slot` is its place in the page.
  void (*append_key)(KvFormat format, const float* k, int head_size, int slot, std::byte* page_head);
  void (*append_value)(KvFormat format, const float* v, int head_size, int slot, std::byte* page_head);
  void (*attend)(const AttendArgs& args);
  // Folds one partition's (out, maximum, denominator) into the running one, in order.
  void (*merge)(float* out, float* maximum, float* denominator, const float* part, float part_maximum,
                float part_denominator, int head_size);
  // out = out / (denominator + exp(sink - maximum)), the sink only if has_sink.
  void (*finish)(float* out, float maximum, float denominator, bool has_sink, float sink, int head_size);

  // y[c] = silu(sum_j weights[j][c] * rows[j][c]) for c < n, kernel taps; rows may lie anywhere.
  void (*convolve)(const float* const* rows, const float* weights, std::size_t weight_stride, int kernel, int n,
                   float* y);
  void (*l2_norm)(float* x, float epsilon, float scale, int n);  // x *= scale / sqrt(sum x^2 + epsilon)
  // decay = exp(rate * softplus(a + dt_bias)), beta = sigmoid(b)
  void (*delta_gates)(const float* a, const float* b, const float* rate, const float* dt_bias, int n, float* decay,
                      float* beta);
  void (*delta_scan)(const DeltaScanArgs& args);
  void (*multiply_sigmoid)(float* y, const float* gate, int n);  // y *= sigmoid(gate)
};

extern const KernelTable kScalarTable;
#if defined(__x86_64__)
extern const KernelTable kAvx2Table;
extern const KernelTable kAvxVnniTable;
extern const KernelTable kAvx512Table;
extern const KernelTable kAvx512VnniTable;
#elif defined(__aarch64__)
extern const KernelTable kNeonDotprodTable;
#endif

}  // namespace adze::cpu
