#include "tune/kernel_bench.hpp"
#include "tune/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

namespace adze::tune {
namespace {

using tensor::DType;

constexpr int kLeastRuns = 5;
constexpr double kLeastSeconds = 0.03;
constexpr int kTokens = 16;  // of the vocabulary: the embedding and the head are small beside what is measured

}  // namespace

struct KernelBench::State {
  ops::Plan plan;
  std::deque<tensor::TensorView> weights;  // the plan points into it
  std::deque<std::vector<std::byte>> bytes;
  std::string kernel;
  int first = 0, last = 0;  // steps that are measured
  int depth = 0;            // positions before the rows
  std::vector<std::int32_t> pages;
  std::unique_ptr<backend::Prepared> prepared;

  // Random values whose products keep their size; every row is the same.
  ops::WeightRef weight(DType type, int rows, int columns) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(columns)));
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (float& value : values) value = normal(random);
    const std::size_t stride = tensor::row_bytes(type, columns);
    std::vector<std::byte>& all = bytes.emplace_back(stride * static_cast<std::size_t>(rows));
    tensor::quantise_row(type, values.data(), all.data(), columns);
    for (std::size_t row = 1; row < static_cast<std::size_t>(rows); ++row)
      std::copy_n(all.data(), stride, all.data() + row * stride);
    const tensor::Shape shape{.dims = {rows, columns, 1, 1}, .rank = 2};
    return &weights.emplace_back(tensor::TensorView{"weight", type, shape, all});
  }

  void begin(int width) {
    plan.family = "bench";
    plan.hidden_size = width;
    plan.vocabulary_size = kTokens;
    plan.buffers.push_back({"row", width});
    add(ops::Embed{.table = weight(DType::f32, kTokens, width), .out = 0});
    first = 1;
  }
  void add(ops::Step step) {
    plan.steps.push_back(std::move(step));
    plan.step_layers.push_back(-1);
  }
  // The head reads every row, so that none is left out on the way.
  Status end(ops::BufferId in, backend::PrepareOptions options) {
    last = static_cast<int>(plan.steps.size()) - 1;
    ops::Head head;
    head.weight = weight(DType::f32, kTokens, plan.hidden_size);
    head.in = in;
    head.norm.kind = ops::NormSpec::Kind::none;
    add(head);
    plan.context_length = depth + kMaxRows;
    options.max_batch_rows = kMaxRows;
    options.max_pages = backend::pages_for(plan.context_length);
    pages.resize(static_cast<std::size_t>(options.max_pages));
    std::iota(pages.begin(), pages.end(), 0);
    ADZE_TRY(prepared, backend::prepare(plan, options));
    for (const backend::DispatchInfo& dispatch : prepared->schedule().dispatches) {
      if (dispatch.first_step <= last && dispatch.last_step >= first && kernel.empty()) kernel = dispatch.kernel;
    }
    return {};
  }
  // Rows of one text from `position` on.
  Status run(int position, int rows) {
    std::vector<backend::Row> batch;
    for (int i = 0; i < rows; ++i)
      batch.push_back({.token = i % kTokens, .sequence = 0, .position = position + i, .wants_logits = true});
    const backend::SequencePages sequence{.full = pages, .slot = 0};
    return prepared->run({.rows = batch, .sequences = {&sequence, 1}});
  }
};

KernelBench::KernelBench(std::unique_ptr<State> state) : state_(std::move(state)) {}
KernelBench::KernelBench(KernelBench&&) noexcept = default;
KernelBench& KernelBench::operator=(KernelBench&&) noexcept = default;
KernelBench::~KernelBench() = default;

Result<KernelBench> KernelBench::products(DType type, const backend::PrepareOptions& options, int matrices) {
  if (tensor::dtype_info(type).quantise == nullptr) {
    return fail(ErrorCode::unsupported_type,
                fmt::format("weights of type {} cannot be made here", tensor::dtype_info(type).name));
  }
  auto state = std::make_unique<State>();
  state->begin(kWidth);
  state->plan.buffers.push_back({"other row", kWidth});
  for (int i = 0; i < matrices; ++i) {
    state->add(ops::Project{.parts = {{.weight = state->weight(type, kWidth, kWidth)}}, .in = i % 2, .out = 1 - i % 2});
  }
  ADZE_TRY_STATUS(state->end(matrices % 2, options));
  return KernelBench(std::move(state));
}

Result<KernelBench> KernelBench::attention(const backend::PrepareOptions& options) {
  auto state = std::make_unique<State>();
  constexpr int kQueries = kHeads * kHeadSize;
  state->begin(kQueries + 2 * kKvHeads * kHeadSize);
  state->plan.buffers.push_back({"queries", kQueries});
  state->plan.buffers.push_back({"attended", kQueries});
  state->depth = kDepth;
  for (int layer = 0; layer < kLayers; ++layer) {
    state->plan.kv_layers.push_back({.kv_heads = kKvHeads, .head_size = kHeadSize});
    state->add(ops::AttentionPrep{.kv_layer = layer,
                                  .heads = kHeads,
                                  .kv_heads = kKvHeads,
                                  .head_size = kHeadSize,
                                  .rope = -1,
                                  .in = 0,
                                  .out = 1});
    state->add(ops::Attend{.kv_layer = layer,
                           .heads = kHeads,
                           .kv_heads = kKvHeads,
                           .head_size = kHeadSize,
                           .scale = 0.125f,
                           .in = 1,
                           .out = 2});
  }
  ADZE_TRY_STATUS(state->end(0, options));
  for (int position = 0; position < kDepth; position += kMaxRows) ADZE_TRY_STATUS(state->run(position, kMaxRows));
  return KernelBench(std::move(state));
}

const std::string& KernelBench::kernel() const { return state_->kernel; }

Result<double> KernelBench::seconds(int rows) {
  double best = 0;
  const double start = steady_seconds();
  for (int run = 0; run < kLeastRuns || steady_seconds() - start < kLeastSeconds; ++run) {
    const double begin = steady_seconds();
    ADZE_TRY_STATUS(state_->run(state_->depth, rows));
    const double taken = steady_seconds() - begin;
    if (run == 0) continue;  // warms up
    best = best == 0 ? taken : std::min(best, taken);
  }
  return best;
}

ops::Work KernelBench::work(int rows) const {
  const double page = static_cast<double>(state_->prepared->memory().bytes_per_page);
  return ops::work_of(state_->plan, {.rows = rows, .wanted = rows, .sequences = 1, .depth = state_->depth},
                      page / backend::kPageTokens);
}

}  // namespace adze::tune
