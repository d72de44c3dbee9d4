#include "backend/cpu/cpu_backend.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_attention.hpp"
#include "backend/cpu/cpu_delta_net.hpp"
#include "backend/cpu/cpu_experts.hpp"
#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/cpu_matmul.hpp"
#include "backend/cpu/cpu_schedule.hpp"
#include "backend/cpu/cpu_scratch.hpp"
#include "backend/cpu/kv_store.hpp"
#include "backend/cpu/state_store.hpp"
#include "backend/cpu/thread_team.hpp"
#include "base/check.hpp"
#include "base/limits.hpp"

namespace adze::cpu {
namespace {

static_assert(kPageTokens == backend::kPageTokens);

// A forward pass in flight: what the dispatches share.
struct Pass {
  const backend::Batch* batch = nullptr;
  int rows = 0;
  std::vector<int> wanted;                // rows whose logits are wanted
  std::vector<backend::Row> needed_rows;  // these rows, once the others are dropped
  backend::Batch needed;                  // of them
  std::atomic<bool> finite{true};
};

class CpuPrepared final : public backend::Prepared {
 public:
  CpuPrepared(const ops::Plan& plan, const backend::PrepareOptions& options, const KernelTable& table,
              CpuSchedule schedule, KvStore kv, StateStore states, DeltaNet delta_net, Scratch scratch, int threads)
      : plan_(plan),
        options_(options),
        table_(table),
        schedule_(std::move(schedule)),
        kv_(std::move(kv)),
        states_(std::move(states)),
        delta_net_(std::move(delta_net)),
        scratch_(std::move(scratch)),
        team_(threads),
        attention_(table_, kv_, scratch_, schedule_, team_),
        mixture_(table_, scratch_, team_) {
    pass_.wanted.reserve(static_cast<std::size_t>(options_.max_batch_rows));
    pass_.needed_rows.reserve(static_cast<std::size_t>(options_.max_batch_rows));
    memory_.weight_bytes = weight_bytes(schedule_);
    memory_.scratch_bytes =
        scratch_bytes(schedule_, plan_, options_.max_batch_rows, threads) + DeltaNet::packed_bytes(plan_);
    memory_.bytes_per_slot = states_.slot_bytes();
    memory_.state_bytes_reserved = states_.slot_bytes() * static_cast<std::uint64_t>(states_.slots());
    memory_.bytes_per_page = kv_.page_bytes();
    memory_.kv_bytes_reserved = kv_.page_bytes() * static_cast<std::uint64_t>(kv_.pages());
  }

  const backend::Schedule& schedule() const override { return schedule_.described; }
  backend::MemoryUse memory() const override { return memory_; }
  void observe(backend::StepObserver* observer) override { observer_ = observer; }

  Status run(const backend::Batch& batch) override {
    ADZE_TRY_STATUS(check(batch));
    ADZE_TRY_STATUS(move_states(batch));
    pass_.batch = &batch;
    pass_.rows = static_cast<int>(batch.rows.size());
    pass_.finite.store(true, std::memory_order_relaxed);
    pass_.wanted.clear();
    for (int r = 0; r < pass_.rows; ++r) {
      if (batch.rows[static_cast<std::size_t>(r)].wants_logits) pass_.wanted.push_back(r);
    }
    logits_.resize(pass_.wanted.size() * static_cast<std::size_t>(plan_.vocabulary_size));
    if (pass_.rows == 0) return {};
    if (observer_ != nullptr) {
      run_observed();
    } else {
      team_.run([&](int member) {
        rotations(member);
        team_.barrier();
        for (const Dispatch& dispatch : schedule_.dispatches) {
          if (dispatch.step == schedule_.first_needed) drop_other_rows(member);
          if (pass_.rows == 0) break;
          execute(dispatch, member);
        }
      });
    }
    if (!pass_.finite.load()) {
      return fail(ErrorCode::non_finite, "the model produced a logit that is not a finite number",
                  "the model file may be damaged; `adze inspect` and a fresh download tell");
    }
    return {};
  }

  std::span<const float> logits(int wanted) const override {
    ADZE_CHECK(wanted >= 0 && static_cast<std::size_t>(wanted) < pass_.wanted.size(), "row {}", wanted);
    const auto vocabulary = static_cast<std::size_t>(plan_.vocabulary_size);
    return {logits_.data() + static_cast<std::size_t>(wanted) * vocabulary, vocabulary};
  }

 private:
  Status check(const backend::Batch& batch) const {
    if (batch.rows.size() > static_cast<std::size_t>(options_.max_batch_rows)) {
      return fail(ErrorCode::invalid_argument, fmt::format("{} rows in a batch, at most {} are prepared for",
                                                           batch.rows.size(), options_.max_batch_rows));
    }
    for (const backend::Row& row : batch.rows) {
      if (row.token < 0 || row.token >= plan_.vocabulary_size) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("token id {} is not in the vocabulary (0..{})", row.token, plan_.vocabulary_size - 1));
      }
      if (row.sequence < 0 || static_cast<std::size_t>(row.sequence) >= batch.sequences.size()) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("row of sequence {}, the batch has {}", row.sequence, batch.sequences.size()));
      }
      const auto pages = batch.sequences[static_cast<std::size_t>(row.sequence)].pages;
      if (row.position < 0 || row.position >= plan_.context_length ||
          static_cast<std::size_t>(row.position / kPageTokens) >= pages.size()) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("position {} lies outside the sequence's {} pages or the context of {}", row.position,
                                pages.size(), plan_.context_length));
      }
      for (const std::int32_t page : pages) {
        if (page < 0 || page >= kv_.pages()) {
          return fail(ErrorCode::invalid_argument, fmt::format("page {} is not one of {}", page, kv_.pages()));
        }
      }
    }
    return {};
  }

  // Checks that every sequence with rows goes on where its slot stands, then notes where it will stand.
  Status move_states(const backend::Batch& batch) {
    if (states_.empty()) return {};
    slots_in_batch_.assign(static_cast<std::size_t>(states_.slots()), false);
    for (std::size_t r = 0; r < batch.rows.size(); ++r) {
      const backend::Row& row = batch.rows[r];
      if (r > 0 && batch.rows[r - 1].sequence == row.sequence) continue;
      const std::int32_t slot = batch.sequences[static_cast<std::size_t>(row.sequence)].slot;
      if (slot < 0 || slot >= states_.slots() || slots_in_batch_[static_cast<std::size_t>(slot)]) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("slot {} of recurrent state is taken, or not one of {}", slot, states_.slots()));
      }
      slots_in_batch_[static_cast<std::size_t>(slot)] = true;
      if (row.position != 0 && row.position != states_.length(slot)) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("position {} cannot follow the recurrent state of slot {}, which has seen {}",
                                row.position, slot, states_.length(slot)));
      }
    }
    for (const backend::Row& row : batch.rows) {
      states_.set_length(batch.sequences[static_cast<std::size_t>(row.sequence)].slot, row.position + 1);
    }
    return {};
  }

  // One dispatch at a time, so that the observer sees each step's buffer.
  void run_observed() {
    team_.run([&](int member) { rotations(member); });
    for (const Dispatch& dispatch : schedule_.dispatches) {
      team_.run([&](int member) { execute(dispatch, member); });
      const ops::BufferId id = std::visit([](const auto& s) { return written(s); }, step(dispatch));
      if (id < 0) continue;
      const ActivationBuffer& b = buffer(id);
      observed_.resize(static_cast<std::size_t>(pass_.rows) * static_cast<std::size_t>(b.width));
      for (int r = 0; r < pass_.rows; ++r) {
        std::copy_n(b.row(r), b.width, observed_.begin() + static_cast<std::ptrdiff_t>(r) * b.width);
      }
      observer_->after_step(dispatch.step, plan_.buffers[static_cast<std::size_t>(id)], observed_, pass_.rows);
    }
  }
  template <class S>
  static ops::BufferId written(const S& s) {
    return s.out;
  }
  static ops::BufferId written(const ops::Head&) { return -1; }

  const ops::Step& step(const Dispatch& dispatch) const { return plan_.steps[static_cast<std::size_t>(dispatch.step)]; }
  ActivationBuffer& buffer(ops::BufferId id) { return scratch_.buffers[static_cast<std::size_t>(id)]; }
  const backend::Row& batch_row(int r) const { return pass_.batch->rows[static_cast<std::size_t>(r)]; }

  // Calls f(row) for this member's rows.
  template <class F>
  void for_rows(int member, int rows, F f) {
    const Share share = share_of(rows, member, team_.size());
    for (int r = share.begin; r < share.end; ++r) f(r);
  }

  // cos and sin of every row's position, for every rope of the plan: float32 angles, as the models were trained.
  void rotations(int member) {
    for (std::size_t i = 0; i < plan_.ropes.size(); ++i) {
      const ops::RopeSpec& rope = plan_.ropes[i];
      const std::size_t half = rope.inverse_frequency.size();
      for_rows(member, pass_.rows, [&](int r) {
        float* cosine = scratch_.rope_cosine[i] + static_cast<std::size_t>(r) * half;
        float* sine = scratch_.rope_sine[i] + static_cast<std::size_t>(r) * half;
        for (std::size_t d = 0; d < half; ++d) {
          const double angle = static_cast<float>(batch_row(r).position) * rope.inverse_frequency[d];
          cosine[d] = static_cast<float>(std::cos(angle)) * rope.magnitude;
          sine[d] = static_cast<float>(std::sin(angle)) * rope.magnitude;
        }
      });
    }
  }

  void quantise_row(const ActivationBuffer& b, int row, int rows) {
    const Tile tile = tile_of(row, rows, table_.max_tile);
    if (b.int8_32.quants != nullptr) table_.quantise32(b.row(row), b.width, b.int8_32, row, tile);
    if (b.int8_256.quants != nullptr) table_.quantise256(b.row(row), b.width, b.int8_256, row, tile);
  }

  void norm_row(const ops::NormSpec& norm, const float* in, int width, float* out) const {
    if (norm.kind == ops::NormSpec::Kind::none) {
      if (out != in) std::copy_n(in, width, out);
      return;
    }
    const int group = norm.weight == nullptr ? width : static_cast<int>(norm.weight->columns());
    const auto kernel = norm.kind == ops::NormSpec::Kind::rms ? table_.rms_norm : table_.layer_norm;
    for (int first = 0; first < width; first += group) {
      kernel(in + first, float_data(norm.weight), norm.one_plus, norm.epsilon, group, out + first);
    }
  }

  // Goes on with the rows whose logits are wanted: they move together at the front of every buffer that is still read.
  void drop_other_rows(int member) {
    if (pass_.wanted.size() == pass_.batch->rows.size()) return;
    team_.barrier();  // everybody has looked at the batch
    if (member == 0) {
      const int rows = static_cast<int>(pass_.wanted.size());
      const auto gather = [&](float* from, std::size_t stride) {
        for (int i = 0; i < rows; ++i) {
          const auto row = static_cast<std::size_t>(pass_.wanted[static_cast<std::size_t>(i)]);
          std::copy_n(from + row * stride, stride, from + static_cast<std::size_t>(i) * stride);
        }
      };
      for (const ops::BufferId id : schedule_.carried) {
        gather(buffer(id).floats, buffer(id).stride);
        for (int i = 0; i < rows; ++i) quantise_row(buffer(id), i, rows);
      }
      for (std::size_t i = 0; i < plan_.ropes.size(); ++i) {
        gather(scratch_.rope_cosine[i], plan_.ropes[i].inverse_frequency.size());
        gather(scratch_.rope_sine[i], plan_.ropes[i].inverse_frequency.size());
      }
      pass_.needed_rows.clear();
      for (int& row : pass_.wanted) {
        pass_.needed_rows.push_back(batch_row(row));
        row = static_cast<int>(pass_.needed_rows.size()) - 1;
      }
      pass_.needed = {.rows = pass_.needed_rows, .sequences = pass_.batch->sequences};
      pass_.batch = &pass_.needed;
      pass_.rows = rows;
    }
    team_.barrier();
  }

  // Runs the step's phases; every phase ends with a barrier, so that the next dispatch may read what this one wrote.
  void execute(const Dispatch& dispatch, int member) {
    std::visit([&](const auto& s) { run_step(s, dispatch, member); }, step(dispatch));
    team_.barrier();
  }

  void run_step(const ops::Embed& s, const Dispatch&, int member) {
    for_rows(member, pass_.rows, [&](int r) {
      float* out = buffer(s.out).row(r);
      tensor::dequantise_row(s.table->type, s.table->row(batch_row(r).token), out, s.table->columns());
      if (s.scale != 1.0f) table_.scale(out, s.scale, static_cast<int>(s.table->columns()));
    });
  }

  void run_step(const ops::Norm& s, const Dispatch& dispatch, int member) {
    const ActivationBuffer& out = buffer(s.out);
    for_rows(member, pass_.rows, [&](int r) {
      norm_row(s.norm, buffer(s.in).row(r), out.width, out.row(r));
      if (dispatch.quantise_output) quantise_row(out, r, pass_.rows);
    });
  }

  void run_step(const ops::ResidualNorm& s, const Dispatch& dispatch, int member) {
    const int width = buffer(s.residual).width;
    for_rows(member, pass_.rows, [&](int r) {
      float* residual = buffer(s.residual).row(r);
      for (const auto& addend : s.addends) {
        float* x = buffer(addend.in).row(r);
        if (addend.has_norm) norm_row(addend.norm, x, width, x);  // nobody reads an addend after this
        table_.add(residual, x, width);
      }
      if (s.scale != 1.0f) table_.scale(residual, s.scale, width);
      if (s.out < 0) return;
      const ActivationBuffer& out = buffer(s.out);
      norm_row(s.norm, residual, width, out.row(r));
      if (dispatch.quantise_output) quantise_row(out, r, pass_.rows);
    });
  }

  std::byte* panel(int member, int which) { return scratch_.members[static_cast<std::size_t>(member)].panels[which]; }

  void run_step(const ops::Project& s, const Dispatch& dispatch, int member) {
    const ActivationBuffer& out = buffer(s.out);
    run_side_by_side(dispatch.matmuls, buffer(s.in), pass_.rows, out.floats, out.stride, panel(member, 0), member,
                     team_.size());
    quantise_output(dispatch, out, member);
  }

  // For steps whose threads own columns: a row can be rounded only when all of them are there.
  void quantise_output(const Dispatch& dispatch, const ActivationBuffer& out, int member) {
    if (!dispatch.quantise_output) return;
    team_.barrier();
    for_rows(member, pass_.rows, [&](int r) { quantise_row(out, r, pass_.rows); });
  }

  void run_step(const ops::AttentionPrep& s, const Dispatch&, int member) {
    if (s.norm_all_heads) {
      for_rows(member, pass_.rows, [&](int r) { norm_all_heads(s, buffer(s.in).row(r)); });
      team_.barrier();
    }
    const ops::NormSpec* const q_norm = s.has_q_norm && !s.norm_all_heads ? &s.q_norm : nullptr;
    const ops::NormSpec* const k_norm = s.has_k_norm && !s.norm_all_heads ? &s.k_norm : nullptr;
    // Units of a row: query heads (each before its gate, if there is one), then key heads, then value heads.
    const int gates = s.gate < 0 ? 0 : s.heads;
    const int units = s.heads + (s.stored == ops::AttentionPrep::Stored::nothing ? 0 : 2 * s.kv_heads);
    const bool key_as_value = s.stored == ops::AttentionPrep::Stored::key_as_value;
    const Share share = share_of(pass_.rows * units, member, team_.size());
    for (int i = share.begin; i < share.end; ++i) {
      const int r = i / units, unit = i % units;
      const int place = key_as_value && unit >= s.heads + s.kv_heads ? unit - s.kv_heads : unit;
      const float* head = buffer(s.in).row(r) + (place + std::min(place, gates)) * s.head_size;
      if (unit < gates) std::copy_n(head + s.head_size, s.head_size, buffer(s.gate).row(r) + unit * s.head_size);
      if (unit < s.heads) {
        float* q = buffer(s.out).row(r) + unit * s.head_size;
        prepare_head(s, q_norm, head, r, q);
        if (s.position_scale != 0.0f) table_.scale(q, ops::position_scale(s, batch_row(r).position), s.head_size);
        continue;
      }
      const backend::Row& row = batch_row(r);
      const auto pages = pass_.batch->sequences[static_cast<std::size_t>(row.sequence)].pages;
      const std::int32_t page = pages[static_cast<std::size_t>(row.position / kPageTokens)];
      const int slot = row.position % kPageTokens;
      if (unit < s.heads + s.kv_heads) {
        float k[limits::kMaxHeadSize];
        prepare_head(s, k_norm, head, r, k);
        table_.append_key(kv_.format(), k, s.head_size, slot, kv_.keys(page, s.kv_layer, unit - s.heads));
      } else {
        float v[limits::kMaxHeadSize];
        if (s.has_v_norm) {
          norm_row(s.v_norm, head, s.head_size, v);
          head = v;
        }
        table_.append_value(kv_.format(), head, s.head_size, slot,
                            kv_.values(page, s.kv_layer, unit - s.heads - s.kv_heads));
      }
    }
  }

  // The norms of a whole projection come before it is cut into heads.
  void norm_all_heads(const ops::AttentionPrep& s, float* stacked) const {
    float* keys = stacked + s.heads * s.head_size;
    if (s.has_q_norm) norm_row(s.q_norm, stacked, s.heads * s.head_size, stacked);
    if (s.has_k_norm) norm_row(s.k_norm, keys, s.kv_heads * s.head_size, keys);
  }

  void prepare_head(const ops::AttentionPrep& s, const ops::NormSpec* norm, const float* in, int row,
                    float* out) const {
    if (norm != nullptr) {
      norm_row(*norm, in, s.head_size, out);
    } else {
      std::copy_n(in, s.head_size, out);
    }
    if (s.rope < 0) return;
    const ops::RopeSpec& rope = plan_.ropes[static_cast<std::size_t>(s.rope)];
    const std::size_t at = static_cast<std::size_t>(row) * rope.inverse_frequency.size();
    table_.rope(out, {scratch_.rope_cosine[static_cast<std::size_t>(s.rope)] + at,
                      scratch_.rope_sine[static_cast<std::size_t>(s.rope)] + at, rope.dims(), rope.interleaved});
  }

  void run_step(const ops::Attend& s, const Dispatch& dispatch, int member) {
    attention_.run(s, *pass_.batch, buffer(s.in), buffer(s.out), member);
    if (s.gate >= 0) {
      team_.barrier();
      const ActivationBuffer &out = buffer(s.out), &gate = buffer(s.gate);
      for_rows(member, pass_.rows, [&](int r) { table_.multiply_sigmoid(out.row(r), gate.row(r), out.width); });
    }
    quantise_output(dispatch, buffer(s.out), member);
  }

  void run_step(const ops::ProjectAdd& s, const Dispatch& dispatch, int member) {
    const BoundMatmul& m = dispatch.matmuls.front();
    const ActivationBuffer& out = buffer(s.out);
    const Share share = share_of(m.groups(), member, team_.size());
    m.kernel->run(matmul_args(m, buffer(s.in), pass_.rows, out.floats, out.stride, s.add, panel(member, 0)),
                  share.begin, share.end);
  }

  void run_step(const ops::GatedPair& s, const Dispatch& dispatch, int member) {
    const BoundMatmul &gate = dispatch.matmuls.front(), &up = dispatch.matmuls.back();
    const ActivationBuffer &in = buffer(s.in), &out = buffer(s.out);
    const GatedActivation act = gated_activation(s.activation).value();
    const Share share = share_of(gate.groups(), member, team_.size());
    const MatmulArgs gate_args = matmul_args(gate, in, pass_.rows, out.floats, out.stride, false, panel(member, 0));
    if (s.up == nullptr) {
      gate.kernel->run(gate_args, share.begin, share.end);
      team_.barrier();
      for_rows(member, pass_.rows,
               [&](int r) { table_.gate(out.row(r), buffer(s.side).row(r) + s.side_first, act, out.width); });
    } else if (gate.kernel == up.kernel) {
      const MatmulArgs up_args = matmul_args(up, in, pass_.rows, nullptr, 0, false, panel(member, 1));
      gate.kernel->gated(gate_args, up_args, act, share.begin, share.end);
    } else {
      const auto stride = static_cast<std::size_t>(schedule_.spare_stride);
      gate.kernel->run(gate_args, share.begin, share.end);
      up.kernel->run(matmul_args(up, in, pass_.rows, scratch_.spare, stride, false, panel(member, 1)), share.begin,
                     share.end);
      team_.barrier();
      for_rows(member, pass_.rows, [&](int r) {
        table_.gate(out.row(r), scratch_.spare + static_cast<std::size_t>(r) * stride, act, out.width);
      });
    }
    quantise_output(dispatch, out, member);
  }

  void run_step(const ops::Route& s, const Dispatch& dispatch, int member) {
    mixture_.route(s, dispatch, buffer(s.in), buffer(s.out), pass_.rows, member);
  }

  void run_step(const ops::Experts& s, const Dispatch& dispatch, int member) {
    mixture_.run(s, dispatch, buffer(s.in), buffer(s.routes), buffer(s.out), pass_.rows, member);
    quantise_output(dispatch, buffer(s.out), member);
  }

  void run_step(const ops::DeltaPrep& s, const Dispatch&, int member) {
    delta_net_.prep(s, *pass_.batch, states_, buffer(s.in), buffer(s.out), member, team_.size());
  }
  void run_step(const ops::DeltaScan& s, const Dispatch&, int member) {
    delta_net_.scan(s, *pass_.batch, states_, buffer(s.in), buffer(s.out), member, team_.size());
  }
  void run_step(const ops::DeltaOut& s, const Dispatch& dispatch, int member) {
    delta_net_.out(s, pass_.rows, buffer(s.in), buffer(s.gate), buffer(s.out), member, team_.size());
    quantise_output(dispatch, buffer(s.out), member);
  }

  void run_step(const ops::Head& s, const Dispatch& dispatch, int member) {
    const int wanted = static_cast<int>(pass_.wanted.size());
    if (wanted == 0) return;
    const ActivationBuffer& in = scratch_.head_input;
    for_rows(member, wanted, [&](int i) {
      norm_row(s.norm, buffer(s.in).row(pass_.wanted[static_cast<std::size_t>(i)]), in.width, in.row(i));
      quantise_row(in, i, wanted);
    });
    team_.barrier();
    const BoundMatmul& m = dispatch.matmuls.front();
    const Share share = share_of(m.groups(), member, team_.size());
    const auto vocabulary = static_cast<std::size_t>(plan_.vocabulary_size);
    m.kernel->run(matmul_args(m, in, wanted, logits_.data(), vocabulary, false, panel(member, 0)), share.begin,
                  share.end);
    const int first = share.begin * kGroupRows, count = std::min(share.end * kGroupRows, plan_.vocabulary_size) - first;
    if (count <= 0) return;
    for (int i = 0; i < wanted; ++i) {
      float* part = logits_.data() + static_cast<std::size_t>(i) * vocabulary + first;
      if (s.softcap != 0.0f) table_.softcap(part, s.softcap, count);
      if (!table_.all_finite(part, count)) pass_.finite.store(false, std::memory_order_relaxed);
    }
  }

  const ops::Plan plan_;
  const backend::PrepareOptions options_;
  const KernelTable& table_;
  const CpuSchedule schedule_;
  KvStore kv_;
  StateStore states_;
  const DeltaNet delta_net_;
  Scratch scratch_;
  ThreadTeam team_;
  Attention attention_;
  Mixture mixture_;
  backend::MemoryUse memory_;
  backend::StepObserver* observer_ = nullptr;
  Pass pass_;
  std::vector<float> logits_;  // [wanted][vocabulary]
  std::vector<float> observed_;
  std::vector<bool> slots_in_batch_;
};

int thread_count(const backend::PrepareOptions& options) {
  return options.threads > 0 ? options.threads : usable_cpus();
}

}  // namespace

backend::MemoryUse estimate_memory(const ops::Plan& plan, const backend::PrepareOptions& options) {
  backend::MemoryUse memory;
  const auto table = choose_table(options.kernel_set);
  const auto schedule = table ? make_schedule(plan, options, **table) : make_schedule(plan, options, kScalarTable);
  if (!schedule) return memory;  // prepare() will say why
  memory.weight_bytes = weight_bytes(*schedule);
  memory.scratch_bytes =
      scratch_bytes(*schedule, plan, options.max_batch_rows, thread_count(options)) + DeltaNet::packed_bytes(plan);
  memory.bytes_per_slot = state_slot_bytes(plan);
  memory.state_bytes_reserved = memory.bytes_per_slot * static_cast<std::uint64_t>(options.max_slots);
  memory.bytes_per_page = kv_page_bytes(plan, schedule->kv_format);
  memory.kv_bytes_reserved = memory.bytes_per_page * static_cast<std::uint64_t>(options.max_pages);
  return memory;
}

Result<std::unique_ptr<backend::Prepared>> prepare(const ops::Plan& plan, const backend::PrepareOptions& options) {
  if (options.threads < 0 || options.threads > limits::kMaxThreads) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} threads; 1 to {} are possible, 0 chooses", options.threads, limits::kMaxThreads));
  }
  if (options.max_batch_rows < 1 || options.max_batch_rows > limits::kMaxBatchRows) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("batches of {} rows; 1 to {} are possible", options.max_batch_rows, limits::kMaxBatchRows));
  }
  if (options.max_slots < 1 || options.max_slots > limits::kMaxBatchRows) {
    return fail(ErrorCode::invalid_argument, fmt::format("{} slots of recurrent state; 1 to {} are possible",
                                                         options.max_slots, limits::kMaxBatchRows));
  }
  ADZE_TRY(const KernelTable* table, choose_table(options.kernel_set));
  ADZE_TRY(CpuSchedule schedule, make_schedule(plan, options, *table));
  ADZE_TRY(KvStore kv, KvStore::reserve(plan, schedule.kv_format, options.max_pages));
  ADZE_TRY(StateStore states, StateStore::reserve(plan, options.max_slots));
  ADZE_TRY(DeltaNet delta_net, DeltaNet::create(plan, *table));
  const int threads = thread_count(options);
  ADZE_TRY(Scratch scratch, make_scratch(schedule, plan, options.max_batch_rows, threads));
  return std::make_unique<CpuPrepared>(plan, options, *table, std::move(schedule), std::move(kv), std::move(states),
                                       std::move(delta_net), std::move(scratch), threads);
}

}  // namespace adze::cpu
