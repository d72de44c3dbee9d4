#include "backend/cpu/cpu_schedule.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "backend/cpu/cpu_side_by_side.hpp"
#include "backend/cpu/cpu_topology.hpp"
#include "base/check.hpp"

namespace adze::cpu {

std::optional<GatedActivation> gated_activation(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::silu: return GatedActivation::silu;
    case ops::Activation::gelu_tanh: return GatedActivation::gelu_tanh;
    case ops::Activation::swiglu_oai: return GatedActivation::swiglu_oai;
    case ops::Activation::gelu_erf:
    case ops::Activation::relu_squared: return std::nullopt;
  }
  ADZE_CHECK(false, "activation {}", static_cast<int>(activation));
}

std::uint64_t weight_bytes(const CpuSchedule& schedule) {
  std::set<ops::WeightRef> weights;  // a weight may serve two products
  for (const auto& of_step : schedule.products) {
    for (const BoundMatmul& m : of_step) weights.insert(m.weight);
  }
  std::uint64_t bytes = 0;
  for (const ops::WeightRef weight : weights) bytes += weight->size_bytes();
  return bytes;
}

std::uint64_t packed_size(const CpuSchedule& schedule) {
  std::uint64_t bytes = 0;
  for (const auto& weight : schedule.packed) bytes += weight->size();
  return bytes;
}

namespace {

// Adds a word to a list of them, once.
void add_once(std::vector<std::string_view>& words, std::string_view word) {
  if (std::ranges::find(words, word) == words.end()) words.push_back(word);
}

class Builder {
 public:
  Builder(const ops::Plan& plan, const backend::PrepareOptions& options, const KernelTable& table)
      : plan_(plan), options_(options), table_(table) {}

  Result<CpuSchedule> build() {
    for (const ops::Buffer& buffer : plan_.buffers) out_.buffers.push_back({buffer.width, padded16(buffer.width)});
    out_.head_input = {plan_.hidden_size, padded16(plan_.hidden_size)};
    const bool f32 = options_.compute == backend::Compute::f32;
    switch (options_.kv_type) {
      case backend::KvType::automatic: out_.kv_format = f32 ? KvFormat::f32 : KvFormat::f16; break;
      case backend::KvType::f32: out_.kv_format = KvFormat::f32; break;
      case backend::KvType::f16: out_.kv_format = KvFormat::f16; break;
      case backend::KvType::q8_0: out_.kv_format = KvFormat::q8_0; break;
    }
    out_.tuning = std::make_unique<Tuning>(table_, options_.threads);
    out_.max_partitions = (plan_.context_length + kPartition - 1) / kPartition;
    for (const ops::Step& step : plan_.steps) {
      Products products;
      ADZE_TRY_STATUS(std::visit([&](const auto& s) { return bind(s, products); }, step));
      add_shape(step, products);
      out_.products.push_back(std::move(products));
    }
    std::uint64_t packed_bytes = 0;
    for (const auto& weight : out_.packed) packed_bytes += weight->size();
    out_.tuning->set_packed_bytes(packed_bytes);
    out_.tuning->choose(options_.choices);
    out_.dispatches = cover(plan_, true);
    out_.single = cover(plan_, false);
    out_.experts.activated.row_sets = out_.experts.experts;
    find_carried_buffers();
    const std::vector<Dispatch> in_order = out_.dispatches;
    if (options_.concurrent) {
      out_.dispatches = put_side_by_side(plan_, out_.buffers, in_order, out_.first_needed);
      for (const Dispatch& d : out_.dispatches) {
        out_.countdowns.lanes = std::max(out_.countdowns.lanes, d.lane + 1);
      }
    }
    share_slots(in_order);
    describe();
    return std::move(out_);
  }

 private:
  using Products = std::vector<BoundMatmul>;

  Result<BoundMatmul> choose(ops::WeightRef weight, ops::WeightRef bias, BufferUse* input, int slices) {
    const bool quantised = tensor::is_block_type(weight->type);
    const bool int8 = quantised && options_.compute == backend::Compute::automatic;
    const MatmulKernel& kernel = (int8 ? table_.int8_kernels : table_.float_kernels)[static_cast<int>(weight->type)];
    if (kernel.name == nullptr) {
      return fail(ErrorCode::unsupported_type,
                  fmt::format("tensor '{}' has type {}, which the CPU backend cannot multiply", weight->name,
                              tensor::dtype_info(weight->type).name));
    }
    if (kernel.activation_block == 32) input->int8_32 = true;
    if (kernel.activation_block == 256) input->int8_256 = true;
    out_.panel_bytes =
        std::max(out_.panel_bytes, kernel.panel_bytes(static_cast<int>(weight->columns()), weight->row_stride()));
    return BoundMatmul{&kernel, weight, bias, packed(kernel, weight, slices)};
  }
  const PackedWeight* packed(const MatmulKernel& kernel, ops::WeightRef weight, int slices) {
    if (kernel.pack == nullptr) return nullptr;
    const auto known = std::ranges::find_if(out_.packed, [&](const auto& p) { return p->weight == weight; });
    if (known != out_.packed.end()) return known->get();
    const auto groups = static_cast<int>((weight->rows() / slices + kGroupRows - 1) / kGroupRows);
    const std::size_t bytes = kernel.packed_bytes(static_cast<int>(weight->columns()), weight->groups);
    out_.packed.push_back(std::make_unique<PackedWeight>(&kernel, weight, slices, groups, bytes));
    return out_.packed.back().get();
  }
  BufferUse* use_of(ops::BufferId id) { return &out_.buffers[static_cast<std::size_t>(id)]; }

  Status add(Products& products, ops::WeightRef weight, ops::WeightRef bias, BufferUse* input, int slices = 1) {
    ADZE_TRY(const BoundMatmul bound, choose(weight, bias, input, slices));
    products.push_back(bound);
    return {};
  }

  // "GatedPair Q4_1 576x3072": the step, its weight types, inputs and outputs of its products together. Steps of one
  // shape are tuned together.
  static std::string shape_of(const ops::Step& step, const Products& products) {
    if (products.empty()) return {};
    std::vector<std::string_view> types;
    std::int64_t rows = 0;
    for (const BoundMatmul& m : products) {
      add_once(types, tensor::dtype_info(m.weight->type).name);
      rows += m.weight->rows();
    }
    return fmt::format("{} {} {}x{}", ops::step_name(step), fmt::join(types, "+"), products.front().weight->columns(),
                       rows);
  }
  void add_shape(const ops::Step& step, Products& products) {
    const std::string name = shape_of(step, products);
    if (name.empty()) return;
    const bool gated = std::holds_alternative<ops::GatedPair>(step) || std::holds_alternative<ops::Experts>(step);
    const auto packable = [](const BoundMatmul& m) { return m.packed != nullptr; };
    ProductKind kind;
    kind.pair = gated && products.size() > 1 && products[0].kernel == products[1].kernel;
    kind.packable = std::ranges::all_of(products, packable);
    kind.prefetched = std::ranges::any_of(
        products, [&](const BoundMatmul& m) { return packable(m) && m.kernel->activation_block != 0; });
    const ProductTuning* tuning = out_.tuning->shape(name, kind);
    for (BoundMatmul& m : products) m.tuning = tuning;
  }

  Status bind(const ops::Embed&, Products&) { return {}; }
  Status bind(const ops::Norm&, Products&) { return {}; }
  Status bind(const ops::ResidualNorm&, Products&) { return {}; }
  Status bind(const ops::AttentionPrep& step, Products&) {
    count_heads(step.heads + step.stored_parts() * step.kv_heads);
    const bool plain = step.gate < 0 && step.stored == ops::AttentionPrep::Stored::key_and_value;
    if (plain || !step.norm_all_heads) return {};
    return fail(ErrorCode::unsupported_feature,
                "the CPU backend has a norm over all heads only of attention without gates and with own keys and "
                "values");
  }
  Status bind(const ops::Attend& step, Products&) {
    use_of(step.out)->row_sets = kSplitRows;
    out_.max_heads = std::max(out_.max_heads, step.heads);
    out_.max_padded_head = std::max(out_.max_padded_head, padded16(step.head_size));
    return {};
  }
  Status bind(const ops::DeltaPrep& step, Products&) {
    count_heads(2 * step.heads.key_heads + step.heads.value_heads + 1);
    return {};
  }
  Status bind(const ops::DeltaScan& step, Products&) {
    out_.countdowns.value_heads = std::max(out_.countdowns.value_heads, step.heads.value_heads);
    return {};
  }
  Status bind(const ops::DeltaOut& step, Products&) {
    use_of(step.out)->each_row = true;  // sequences are completed apart from each other, each may have one row
    return {};
  }
  Status bind(const ops::Project& step, Products& products) {
    for (const auto& part : step.parts) ADZE_TRY_STATUS(add(products, part.weight, part.bias, use_of(step.in)));
    return {};
  }
  Status bind(const ops::ProjectAdd& step, Products& products) {
    return add(products, step.weight, step.bias, use_of(step.in));
  }
  Status bind(const ops::GatedPair& step, Products& products) {
    if (!gated_activation(step.activation)) return refuse_activation();
    ADZE_TRY_STATUS(add(products, step.gate, step.gate_bias, use_of(step.in)));
    if (step.up == nullptr) return {};
    ADZE_TRY_STATUS(add(products, step.up, step.up_bias, use_of(step.in)));
    // Weights of two types are multiplied one after the other, those of one type where a profile says so; the second
    // product needs room of its own.
    out_.spare_stride = std::max(out_.spare_stride, padded16(static_cast<int>(step.up->rows())));
    return {};
  }
  Status bind(const ops::Route& step, Products& products) {
    ADZE_TRY_STATUS(add(products, step.weight, nullptr, use_of(step.in)));
    if (step.shared_gate != nullptr) ADZE_TRY_STATUS(add(products, step.shared_gate, nullptr, use_of(step.in)));
    out_.experts.experts = std::max(out_.experts.experts, static_cast<int>(step.weight->rows()) + 1);
    out_.experts.slots = std::max(out_.experts.slots, step.slots());
    return {};
  }
  Status bind(const ops::Experts& step, Products& products) {
    if (!gated_activation(step.activation)) return refuse_activation();
    ADZE_TRY_STATUS(add_expert_weights(products, step.routed));
    if (step.shared.count > 0) ADZE_TRY_STATUS(add_expert_weights(products, step.shared));
    return {};
  }
  // Gate, up and down. Their inputs are the gathered rows, which are rounded for each expert's own tiles.
  Status add_expert_weights(Products& products, const ops::Experts::Weights& w) {
    ExpertUse& use = out_.experts;
    const auto widen = [](BufferUse& buffer, std::int64_t width) {
      buffer.width = std::max(buffer.width, static_cast<int>(width));
      buffer.stride = padded16(buffer.width);
    };
    ADZE_TRY_STATUS(add(products, w.gate, w.gate_bias, &use.input, w.count));
    ADZE_TRY_STATUS(add(products, w.up, w.up_bias, &use.input, w.count));
    ADZE_TRY_STATUS(add(products, w.down, w.down_bias, &use.activated, w.count));
    widen(use.input, w.gate->columns());
    widen(use.input, w.down->rows() / w.count);
    widen(use.activated, w.width);
    return {};
  }
  static Status refuse_activation() {
    return fail(ErrorCode::unsupported_feature,
                "the CPU backend gates with SiLU, tanh-GELU or the clamped SwiGLU of gpt-oss only");
  }
  Status bind(const ops::Head& step, Products& products) {
    return add(products, step.weight, step.bias, &out_.head_input);
  }

  void count_heads(int heads) { out_.countdowns.prepared_heads = std::max(out_.countdowns.prepared_heads, heads); }

  void find_carried_buffers() {
    // Behind the last step that stores something, and behind what rides along with it.
    const auto stored = std::find_if(plan_.steps.rbegin(), plan_.steps.rend(), ops::stores).base();
    const auto first = std::ranges::find_if(
        out_.dispatches, [&](const Dispatch& d) { return d.first_step() >= stored - plan_.steps.begin(); });
    out_.first_needed = static_cast<std::size_t>(first - out_.dispatches.begin());
    const auto begin = first == out_.dispatches.end() ? plan_.steps.end() : plan_.steps.begin() + first->first_step();
    std::set<ops::BufferId> read, written;
    for (auto step = begin; step != plan_.steps.end(); ++step) {
      const ops::Access access = ops::step_access(*step);
      for (const ops::BufferId id : access.reads) {
        if (!written.contains(id)) read.insert(id);
      }
      written.insert(access.writes.begin(), access.writes.end());
    }
    out_.carried.assign(read.begin(), read.end());
  }

  // Which buffers hold something at the same time: walking backwards, all that the dispatches between two barriers
  // read, write or leave alive. Inside one, a thread may be steps ahead of another.
  using Conflicts = std::vector<std::set<int>>;
  void add_conflicts(const std::vector<Dispatch>& dispatches, Conflicts& conflicts) const {
    std::set<int> alive, together;
    for (auto dispatch = dispatches.rbegin(); dispatch != dispatches.rend(); ++dispatch) {
      if (dispatch->meets) together = alive;
      for (int s = dispatch->last_step(); s >= dispatch->first_step(); --s) {
        const ops::Access access = ops::step_access(plan_.steps[static_cast<std::size_t>(s)]);
        together.insert(access.reads.begin(), access.reads.end());
        together.insert(access.writes.begin(), access.writes.end());
        for (const int written : access.writes) alive.erase(written);
        alive.insert(access.reads.begin(), access.reads.end());
      }
      for (const int a : together) conflicts[static_cast<std::size_t>(a)].insert(together.begin(), together.end());
    }
  }

  // Widest first, each into the first slot that is free of its conflicts. Buffers with padding stay alone: kernels rely
  // on its zeros. An observer sees the plan's own order.
  void share_slots(const std::vector<Dispatch>& in_order) {
    Conflicts conflicting(plan_.buffers.size());
    add_conflicts(in_order, conflicting);
    if (options_.concurrent) add_conflicts(out_.dispatches, conflicting);
    std::vector<int> order(out_.buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return out_.buffers[static_cast<std::size_t>(a)].width > out_.buffers[static_cast<std::size_t>(b)].width;
    });
    std::vector<std::vector<int>> members;
    for (const int id : order) {
      BufferUse& use = out_.buffers[static_cast<std::size_t>(id)];
      const auto fits = [&](const std::vector<int>& slot) {
        const bool padded = use.width != use.stride || out_.buffers[static_cast<std::size_t>(slot.front())].width !=
                                                           out_.buffers[static_cast<std::size_t>(slot.front())].stride;
        return !padded && std::none_of(slot.begin(), slot.end(), [&](int other) {
          return conflicting[static_cast<std::size_t>(id)].contains(other);
        });
      };
      auto slot = std::find_if(members.begin(), members.end(), fits);
      if (slot == members.end()) {
        slot = members.insert(members.end(), std::vector<int>{});
        out_.slots.push_back(use);
      }
      slot->push_back(id);
      use.slot = static_cast<int>(slot - members.begin());
      BufferUse& shared = out_.slots[static_cast<std::size_t>(use.slot)];
      shared.int8_32 |= use.int8_32;
      shared.int8_256 |= use.int8_256;
      shared.row_sets = std::max(shared.row_sets, use.row_sets);
      shared.each_row |= use.each_row;
    }
  }

  // Of the products that the dispatch's threads share; those of a mixture show in both of its dispatches.
  void describe_kernels(const Dispatch& dispatch, backend::DispatchInfo& info) const {
    if (dispatch.lead.sharing == Sharing::columns) {
      std::vector<std::string_view> kernels;
      for (const BoundMatmul& m : out_.products[static_cast<std::size_t>(dispatch.lead.step)]) {
        add_once(kernels, m.kernel->name);
      }
      info.kernel = fmt::format("{}", fmt::join(kernels, ", "));
      info.reason = fmt::format(
          "the {} kernel for this weight type{}; tiles of up to {} rows on packed weights; on those of the file "
          "through a panel",
          table_.name, options_.compute == backend::Compute::f32 ? " under --compute f32" : "", table_.max_tile);
    } else {
      info.kernel = "f32";
      info.reason = "no products";
    }
    info.kernel += fmt::format(", {}", table_.name);
  }

  void describe_choices(const Dispatch& dispatch, backend::DispatchInfo& info) const {
    const auto step = static_cast<std::size_t>(dispatch.lead.step);
    if (dispatch.lead.sharing != Sharing::columns) return;
    info.shape = shape_of(plan_.steps[step], out_.products[step]);
    info.choices = out_.tuning->describe(info.shape);
  }

  void describe() {
    backend::Schedule& s = out_.described;
    s.backend = "cpu";
    s.choices = out_.tuning->describe({});
    std::set<std::string> classes;
    std::string route;
    for (const Dispatch& dispatch : out_.dispatches) {
      backend::DispatchInfo info;
      info.name = dispatch_name(plan_, dispatch);
      info.first_step = dispatch.first_step();
      info.last_step = dispatch.last_step();
      info.layer = plan_.step_layers[static_cast<std::size_t>(info.first_step)];
      info.barriers = dispatch.barriers(1);
      info.barriers_of_many_rows = dispatch.barriers(kSplitRows + 1);
      info.together = dispatch.reason;
      info.meets = dispatch.meets;
      describe_kernels(dispatch, info);
      describe_choices(dispatch, info);
      route += info.name + '|' + info.kernel + (info.meets ? "\n" : " & ");
      s.dispatches.push_back(std::move(info));
    }
    for (const auto& of_step : out_.products) {
      for (const BoundMatmul& m : of_step) {
        classes.insert(
            fmt::format("{}:{}", tensor::dtype_info(m.weight->type).name,
                        m.kernel->activation_block == 0 ? "f32" : fmt::format("int8/{}", m.kernel->activation_block)));
      }
    }
    const char* kv = out_.kv_format == KvFormat::f32 ? "f32" : out_.kv_format == KvFormat::f16 ? "f16" : "q8_0";
    for (const std::string& c : classes) s.numeric_class += c + ' ';
    s.numeric_class += fmt::format("kv:{}", kv);
    s.route = digest(route + s.numeric_class);
  }

  const ops::Plan& plan_;
  const backend::PrepareOptions& options_;
  const KernelTable& table_;
  CpuSchedule out_;
};

}  // namespace

Result<CpuSchedule> make_schedule(const ops::Plan& plan, const backend::PrepareOptions& options,
                                  const KernelTable& table) {
  return Builder(plan, options, table).build();
}

}  // namespace adze::cpu
