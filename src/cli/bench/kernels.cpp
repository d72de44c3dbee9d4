#include "cli/bench/kernels.hpp"

#include <fmt/format.h>

#include "backend/machine.hpp"
#include "base/limits.hpp"
#include "cli/bench/limits.hpp"
#include "cli/engine_setup.hpp"
#include "cli/interrupt.hpp"
#include "quantise/scheme.hpp"
#include "tune/kernel_bench.hpp"

namespace adze::cli::bench {
namespace {

// One measured step.
struct Row {
  std::string what;    // "Q4_0", "attention f16"
  std::string kernel;  // the backend's word
  int rows = 0;
  double seconds = 0;
  ForwardWork work;
  std::uint64_t working_set = 0;  // bytes
  Bound bound;
};

class Run {
 public:
  Run(Context& context, std::vector<int> rows, std::string kernel_set, int threads)
      : context_(context), rows_(std::move(rows)), limits_(kernel_set, threads) {
    options_.kernel_set = std::move(kernel_set);
    options_.threads = threads;
    options_.pack_in_memory = !context.arguments.has("unpacked");
    if (context.settings().compute == "f32") options_.compute = backend::Compute::f32;
  }

  Status products(tensor::DType type) {
    ADZE_TRY(tune::KernelBench bench, tune::KernelBench::products(type, options_));
    return measure(std::string(tensor::dtype_info(type).name), bench);
  }
  Status attention(std::string_view name, backend::KvType type) {
    options_.kv_type = type;
    ADZE_TRY(tune::KernelBench bench, tune::KernelBench::attention(options_));
    return measure(fmt::format("attention {}", name), bench);
  }
  // All that was measured, against the limits of the whole run.
  const std::vector<Row>& finish() {
    for (Row& row : measured_) row.bound = limits_.bound(row.work, row.working_set);
    return measured_;
  }

 private:
  Status measure(const std::string& what, tune::KernelBench& bench) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const int rows = rows_[i];
      if (interrupted()) return fail(ErrorCode::cancelled, "stopped");
      ops::Work work = bench.work(rows);
      if (options_.compute == backend::Compute::f32) work = ops::in_floats(work);
      const ForwardWork forward{.weight_bytes = work.weight_bytes,
                                .cache_bytes = work.cache_bytes,
                                .byte_products = work.byte_products,
                                .float_products = work.float_products};
      const auto working_set = static_cast<std::uint64_t>(work.weight_bytes + work.cache_bytes);
      ADZE_TRY_STATUS(limits_.measure(working_set));
      ADZE_TRY(const double seconds, bench.seconds(rows));
      measured_.push_back({what, bench.kernel(), rows, seconds, forward, working_set, {}});
      context_.console.progress(what, static_cast<double>(i + 1) / static_cast<double>(rows_.size()));
    }
    context_.console.end_progress();
    return {};
  }

  Context& context_;
  std::vector<int> rows_;
  Limits limits_;
  backend::PrepareOptions options_;
  std::vector<Row> measured_;
};

std::string as_text(const std::vector<Row>& rows) {
  std::string out = fmt::format("{:<16} {:<32} {:>5} {:>10} {:>8} {:>8}  {}\n", "weights", "kernel", "rows", "ms",
                                "GB/s", "GMAC/s", "of the limit");
  for (const Row& row : rows) {
    const double bytes = row.work.weight_bytes + row.work.cache_bytes;
    const double products = row.work.byte_products + row.work.float_products;
    out += fmt::format("{:<16} {:<32} {:>5} {:>10.3f} {:>8.1f} {:>8.1f}  {}\n", row.what, row.kernel, row.rows,
                       row.seconds * 1e3, bytes / row.seconds / 1e9, products / row.seconds / 1e9,
                       row.bound.share_text(row.seconds));
  }
  return out;
}

std::string as_json(const std::vector<Row>& rows, std::string_view kernel_set, int threads) {
  JsonWriter json;
  json.begin_object().field("kernel_set", kernel_set).field("threads", threads).key("kernels").begin_array();
  for (const Row& row : rows) {
    json.begin_object()
        .field("what", row.what)
        .field("kernel", row.kernel)
        .field("rows", row.rows)
        .field("seconds", row.seconds)
        .field("bytes", row.work.weight_bytes + row.work.cache_bytes)
        .field("multiply_adds", row.work.byte_products + row.work.float_products)
        .field("bound", row.bound.by_memory ? "memory" : "compute")
        .field("limit_per_second", row.bound.rate())
        .field("share_of_limit", row.bound.seconds / row.seconds)
        .end_object();
  }
  return json.end_array().end_object().take();
}

}  // namespace

Result<ExitCode> bench_kernels(Context& context) {
  const Arguments& arguments = context.arguments;
  ADZE_TRY(std::vector<int> rows, parse_counts("--rows", arguments.value("rows").value_or("1,2,4,8,12,16,64"), 1,
                                               tune::KernelBench::kMaxRows));
  std::vector<tensor::DType> types;
  bool attention = false;
  for (std::size_t i = 1; const auto name = arguments.positional(i); ++i) {
    if (*name == "attention") {
      attention = true;
      continue;
    }
    ADZE_TRY(const tensor::DType type, quantise::find_weight_type(*name));
    types.push_back(type);
  }
  if (types.empty() && !attention) {
    attention = true;
    for (const tensor::DTypeInfo& info : tensor::all_dtypes()) {
      if (info.quantise != nullptr) types.push_back(info.type);
    }
  }
  ADZE_TRY(const Team machine, team_of(context));
  watch_interrupts();
  Run run(context, std::move(rows), machine.kernel_set, machine.threads);
  for (const tensor::DType type : types) ADZE_TRY_STATUS(run.products(type));
  if (attention) {
    for (const auto& [name, type] :
         {std::pair{"f32", backend::KvType::f32}, {"f16", backend::KvType::f16}, {"q8_0", backend::KvType::q8_0}}) {
      ADZE_TRY_STATUS(run.attention(name, type));
    }
  }
  const std::vector<Row>& measured = run.finish();
  if (arguments.has("json")) {
    context.console.print(as_json(measured, machine.kernel_set, machine.threads));
  } else {
    context.console.print(fmt::format("{}, {} threads\n{}", machine.kernel_set, machine.threads, as_text(measured)));
  }
  return ExitCode::ok;
}

Result<ExitCode> bench_limits(Context& context) {
  ADZE_TRY(const Team machine, team_of(context));
  constexpr std::uint64_t kMebibytes[] = {1, 16, 90, 350};
  JsonWriter json;
  json.begin_object()
      .field("kernel_set", machine.kernel_set)
      .field("threads", machine.threads)
      .key("read")
      .begin_array();
  std::string text = fmt::format("{}, {} threads\n", machine.kernel_set, machine.threads);
  for (const std::uint64_t mebibytes : kMebibytes) {
    ADZE_TRY(const double rate, backend::measure_read_rate(machine.kernel_set, machine.threads, mebibytes << 20));
    text += fmt::format("read {:>4} MiB {:>12.1f} GB/s\n", mebibytes, rate / 1e9);
    json.begin_object().field("bytes", mebibytes << 20).field("bytes_per_second", rate).end_object();
  }
  json.end_array();
  ADZE_TRY(const backend::MultiplyRates rates, backend::measure_multiply_rates(machine.kernel_set, machine.threads));
  text += fmt::format("int8 x int8   {:>12.1f} GMAC/s\nf32 x f32     {:>12.1f} GMAC/s\n", rates.bytes / 1e9,
                      rates.floats / 1e9);
  json.field("int8_multiply_adds_per_second", rates.bytes).field("f32_multiply_adds_per_second", rates.floats);
  context.console.print(context.arguments.has("json") ? json.end_object().take() : text);
  return ExitCode::ok;
}

}  // namespace adze::cli::bench
