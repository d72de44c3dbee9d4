#include "backend/cpu/cpu_backend.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

#include "backend/batch_check.hpp"
#include "backend/cpu/cpu_attention.hpp"
#include "backend/cpu/cpu_delta_net.hpp"
#include "backend/cpu/cpu_experts.hpp"
#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/cpu_heads.hpp"
#include "backend/cpu/cpu_matmul.hpp"
#include "backend/cpu/cpu_norm.hpp"
#include "backend/cpu/cpu_packs.hpp"
#include "backend/cpu/cpu_rounding.hpp"
#include "backend/cpu/cpu_schedule.hpp"
#include "backend/cpu/cpu_scratch.hpp"
#include "backend/cpu/cpu_topology.hpp"
#include "backend/cpu/kv_store.hpp"
#include "backend/cpu/state_store.hpp"
#include "backend/cpu/thread_team.hpp"
#include "base/check.hpp"

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
};

class CpuPrepared final : public backend::Prepared {
 public:
  CpuPrepared(const ops::Plan& plan, const backend::PrepareOptions& options, const KernelTable& table,
              CpuSchedule schedule, Arena packs, KvStore kv, StateStore states, DeltaNet delta_net, Scratch scratch,
              std::span<const std::vector<int>> places)
      : plan_(plan),
        options_(options),
        table_(table),
        schedule_(std::move(schedule)),
        pack_memory_(std::move(packs)),
        packs_(schedule_, options_.packs),
        kv_(std::move(kv)),
        states_(std::move(states)),
        delta_net_(std::move(delta_net)),
        scratch_(std::move(scratch)),
        team_(options_.threads, places),
        rounding_(table_, *schedule_.tuning),
        heads_(plan_, table_, kv_, scratch_),
        attention_(table_, kv_, scratch_, schedule_, rounding_, team_),
        mixture_(table_, scratch_, rounding_, team_) {
    pass_.wanted.reserve(static_cast<std::size_t>(options_.max_batch_rows));
    pass_.needed_rows.reserve(static_cast<std::size_t>(options_.max_batch_rows));
    memory_.weight_bytes = weight_bytes(schedule_);
    memory_.packed_bytes = packs_.before_pass(0);
    if (options_.pack_in_memory) memory_.packed_bytes = packed_size(schedule_);
    memory_.scratch_bytes = scratch_bytes(schedule_, plan_, options_.max_batch_rows, options_.threads) +
                            DeltaNet::bytes(plan_, options_.threads);
    memory_.bytes_per_slot = states_.slot_bytes();
    memory_.state_bytes_reserved = states_.slot_bytes() * static_cast<std::uint64_t>(states_.slots());
    memory_.bytes_per_page = kv_.page_bytes(backend::PageGroup::full);
    memory_.bytes_per_sliding_page = kv_.page_bytes(backend::PageGroup::sliding);
    memory_.kv_bytes_reserved = kv_.reserved_bytes();
  }

  const backend::Schedule& schedule() const override { return schedule_.described; }
  backend::MemoryUse memory() const override { return memory_; }
  void observe(backend::StepObserver* observer) override { observer_ = observer; }
  void copy_page(backend::PageGroup group, std::int32_t from, std::int32_t to) override { kv_.copy(group, from, to); }
  void copy_state(std::int32_t from, std::int32_t to) override { states_.copy(from, to); }
  backend::PackReport packs() const override { return packs_.store().report(); }
  void wait_for_packs(const backend::PackProgress& go_on) override { packs_.store().wait(go_on); }
  std::vector<backend::Candidates> candidates(backend::Regime regime) const override {
    return schedule_.tuning->candidates(regime);
  }
  void choose(std::span<const backend::Choice> choices) override { schedule_.tuning->choose(choices); }
  void time_dispatches(std::vector<double>* seconds) override { seconds_ = seconds; }

  Status run(const backend::Batch& batch) override {
    ADZE_TRY_STATUS(backend::check_batch(batch, plan_, options_));
    ADZE_TRY_STATUS(states_.move_on(batch));
    if (const std::uint64_t packed = packs_.before_pass(static_cast<int>(batch.rows.size())); packed > 0) {
      memory_.packed_bytes = packed;
    }
    pass_.batch = &batch;
    pass_.rows = static_cast<int>(batch.rows.size());
    pass_.wanted.clear();
    for (int r = 0; r < pass_.rows; ++r) {
      if (batch.rows[static_cast<std::size_t>(r)].wants_logits) pass_.wanted.push_back(r);
    }
    logits_.resize(pass_.wanted.size() * static_cast<std::size_t>(plan_.vocabulary_size));
    maxima_.resize(pass_.wanted.size() * maxima_of_row());
    not_finite_.assign(pass_.wanted.size(), 0);
    if (pass_.rows == 0) return {};
    enter_regime(batch);
    if (observer_ != nullptr) {
      run_observed();
    } else {
      if (seconds_ != nullptr) seconds_->assign(schedule_.dispatches.size(), 0.0);
      team_.run([&](int member) {
        rotations(member);
        team_.barrier();
        for (std::size_t i = 0; i < schedule_.dispatches.size(); ++i) {
          if (i == schedule_.first_needed) drop_other_rows(member);
          if (pass_.rows == 0) break;
          if (seconds_ != nullptr && member == 0) {
            const auto begin = std::chrono::steady_clock::now();
            execute(schedule_.dispatches[i], member);
            (*seconds_)[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
          } else {
            execute(schedule_.dispatches[i], member);
          }
        }
      });
    }
    return {};
  }

  std::span<const float> logits(int wanted) const override {
    ADZE_CHECK(wanted >= 0 && static_cast<std::size_t>(wanted) < pass_.wanted.size(), "row {}", wanted);
    const auto vocabulary = static_cast<std::size_t>(plan_.vocabulary_size);
    return {logits_.data() + static_cast<std::size_t>(wanted) * vocabulary, vocabulary};
  }

  std::span<const float> logit_maxima(int wanted) const override {
    ADZE_CHECK(wanted >= 0 && static_cast<std::size_t>(wanted) < pass_.wanted.size(), "row {}", wanted);
    if (not_finite_[static_cast<std::size_t>(wanted)] != 0) return {};
    return {maxima_.data() + static_cast<std::size_t>(wanted) * maxima_of_row(), maxima_of_row()};
  }

 private:
  std::size_t maxima_of_row() const {
    return static_cast<std::size_t>(plan_.vocabulary_size + backend::kLogitBlock - 1) / backend::kLogitBlock;
  }
  void enter_regime(const backend::Batch& batch) {
    int last = 0;
    for (const backend::Row& row : batch.rows) last = std::max(last, row.position);
    schedule_.tuning->enter(backend::regime_of(pass_.rows, last));
    team_.resize(schedule_.tuning->threads());
  }

  // One stage at a time, so that the observer sees each step's buffer.
  void run_observed() {
    team_.run([&](int member) { rotations(member); });
    const std::vector<Dispatch>& single = schedule_.single;
    for (std::size_t i = 0; i < single.size(); ++i) {
      const int step = single[i].lead.step;
      const ops::Step& what = step_of(single[i].lead);
      const bool inputs = observer_->wants_inputs(step);
      if (inputs && (i == 0 || single[i - 1].lead.step != step)) {
        for (const ops::BufferId id : ops::step_access(what).reads) {
          observer_->before_step(step, id, copy_rows(buffer(id), 0, pass_.rows, observed_), pass_.rows);
        }
      }
      team_.run([&](int member) { execute(single[i], member); });
      if (i + 1 < single.size() && single[i + 1].lead.step == step) continue;
      if (const auto* experts = std::get_if<ops::Experts>(&what); experts != nullptr && inputs) {
        mixture_.for_activated(*experts, [&](int expert, const ActivationBuffer& rows, int first, int count) {
          observer_->after_experts(step, expert, copy_rows(rows, first, count, observed_), count);
        });
      }
      const ops::BufferId id = std::visit([](const auto& s) { return written(s); }, what);
      if (id < 0) continue;
      observer_->after_step(step, plan_.buffers[static_cast<std::size_t>(id)],
                            copy_rows(buffer(id), 0, pass_.rows, observed_), pass_.rows);
    }
  }
  template <class S>
  static ops::BufferId written(const S& s) {
    return s.out;
  }
  static ops::BufferId written(const ops::Head&) { return -1; }

  const ops::Step& step_of(const Stage& stage) const { return plan_.steps[static_cast<std::size_t>(stage.step)]; }
  const std::vector<BoundMatmul>& products_of(const Stage& stage) const {
    return schedule_.products[static_cast<std::size_t>(stage.step)];
  }
  ActivationBuffer& buffer(ops::BufferId id) { return scratch_.buffers[static_cast<std::size_t>(id)]; }
  const ActivationBuffer* buffer_or_null(ops::BufferId id) { return id < 0 ? nullptr : &buffer(id); }
  const backend::Row& batch_row(int r) const { return pass_.batch->rows[static_cast<std::size_t>(r)]; }

  // Calls f(row) for this member's rows.
  template <class F>
  void for_rows(Crew crew, int rows, F f) {
    const Share share = share_of(rows, crew.member, crew.members);
    for (int r = share.begin; r < share.end; ++r) f(r);
  }

  // cos and sin of every row's position, for every rope of the plan: float32 angles, as the models were trained.
  void rotations(int member) {
    for (std::size_t i = 0; i < plan_.ropes.size(); ++i) {
      const ops::RopeSpec& rope = plan_.ropes[i];
      const std::size_t half = rope.inverse_frequency.size();
      for_rows({member, team_.size()}, pass_.rows, [&](int r) {
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
        for (int i = 0; i < rows; ++i) rounding_.row(buffer(id), i, rows);
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

  // Ends with a barrier, so that the next dispatch may read what this one wrote, unless it has no need to.
  void execute(const Dispatch& dispatch, int member) {
    const std::uint32_t before = team_.barriers();
    const int rows = pass_.rows;
    const Progress progress = run_lead(dispatch, member);
    Crew crew{member, team_.size()};
    bool goes_on = !dispatch.rows.empty();
    if (dispatch.rows_wait() && rows <= dispatch.few_rows) {
      goes_on = scratch_.countdowns.rows.complete(dispatch.columns_counter(), progress.done, progress.all);
      crew = {0, 1, true};
    } else if (dispatch.rows_wait()) {
      team_.barrier();
    }
    if (goes_on) {
      for (const Stage& stage : dispatch.rows) run_rows(dispatch, stage, crew);
    }
    if (dispatch.meets) team_.barrier();
    ADZE_CHECK(member != 0 || team_.barriers() - before == static_cast<std::uint32_t>(dispatch.barriers(rows)),
               "{} passed {} barriers", dispatch_name(plan_, dispatch), team_.barriers() - before);
  }

  // Columns that a member has completed, of all.
  struct Progress {
    int done = 0, all = 0;
  };

  Progress run_lead(const Dispatch& dispatch, int member) {
    const Stage& lead = dispatch.lead;
    switch (lead.sharing) {
      case Sharing::rows: run_rows(dispatch, lead, {member, team_.size()}); return {};
      case Sharing::columns:
        return std::visit([&](const auto& s) { return run_columns(s, dispatch, member); }, step_of(lead));
      case Sharing::heads: std::visit([&](const auto& s) { run_heads(s, member); }, step_of(lead)); return {};
      case Sharing::attention: run_attention(std::get<ops::Attend>(step_of(lead)), member); return {};
      case Sharing::states: run_states(std::get<ops::DeltaScan>(step_of(lead)), dispatch, member); return {};
    }
    ADZE_CHECK(false, "sharing {}", static_cast<int>(lead.sharing));
  }

  // --- by rows -------------------------------------------------------------------------------------------------------

  void run_rows(const Dispatch& dispatch, const Stage& stage, Crew crew) {
    const ops::Step& step = step_of(stage);
    if (const auto* head = std::get_if<ops::Head>(&step)) {
      for_rows(crew, static_cast<int>(pass_.wanted.size()), [&](int i) { norm_wanted_row(*head, i); });
    } else if (const auto* experts = std::get_if<ops::Experts>(&step)) {
      const Share mine = share_of(pass_.rows, crew.member, crew.members);
      const bool last = &stage == &dispatch.lead ? crew.member == 0
                                                 : scratch_.countdowns.rows.complete(dispatch.rows_counter(),
                                                                                     mine.end - mine.begin, pass_.rows);
      mixture_.gather(*experts, products_of(stage), buffer(experts->in), buffer(experts->routes), pass_.rows, last,
                      crew);
    } else {
      std::visit([&](const auto& s) { for_rows(crew, pass_.rows, [&](int r) { run_row(s, r); }); }, step);
    }
  }

  void run_row(const ops::Embed& s, int r) {
    float* out = buffer(s.out).row(r);
    packs_.dequantise_row(*s.table, batch_row(r).token, out);
    if (s.scale != 1.0f) table_.scale(out, s.scale, static_cast<int>(s.table->columns()));
    rounding_.row(buffer(s.out), r, pass_.rows);
  }

  void run_row(const ops::Norm& s, int r) {
    const ActivationBuffer& out = buffer(s.out);
    norm_row(table_, s.norm, buffer(s.in).row(r), out.width, out.row(r));
    rounding_.row(out, r, pass_.rows);
  }

  void run_row(const ops::ResidualNorm& s, int r) {
    const int width = buffer(s.residual).width;
    float* residual = buffer(s.residual).row(r);
    for (const auto& addend : s.addends) {
      float* x = buffer(addend.in).row(r);
      if (addend.has_norm) norm_row(table_, addend.norm, x, width, x);  // nobody reads an addend after this
      table_.add(residual, x, width);
    }
    if (s.scale != 1.0f) table_.scale(residual, s.scale, width);
    rounding_.row(buffer(s.residual), r, pass_.rows);
    if (s.out < 0) return;
    const ActivationBuffer& out = buffer(s.out);
    norm_row(table_, s.norm, residual, width, out.row(r));
    rounding_.row(out, r, pass_.rows);
  }

  void run_row(const ops::AttentionPrep& s, int r) {
    heads_.run_row(s, r, *pass_.batch, buffer(s.in), buffer(s.out), buffer_or_null(s.gate));
  }
  void run_row(const ops::Route& s, int r) { mixture_.choose(s, buffer(s.out), r); }

  template <class S>
  void run_row(const S& s, int) {
    ADZE_CHECK(false, "{} is not shared by rows", ops::step_name(s));
  }

  void norm_wanted_row(const ops::Head& s, int i) {
    const ActivationBuffer& in = scratch_.head_input;
    norm_row(table_, s.norm, buffer(s.in).row(pass_.wanted[static_cast<std::size_t>(i)]), in.width, in.row(i));
    rounding_.row(in, i, static_cast<int>(pass_.wanted.size()));
  }

  // --- by columns ----------------------------------------------------------------------------------------------------

  std::byte* panel(int member, int which) { return scratch_.members[static_cast<std::size_t>(member)].panels[which]; }
  RowSet all_rows() const { return {0, pass_.rows, pass_.rows, 0}; }

  Progress run_columns(const ops::Project& s, const Dispatch& dispatch, int member) {
    const ActivationBuffer& out = buffer(s.out);
    const Columns done = run_side_by_side(products_of(dispatch.lead), buffer(s.in), pass_.rows, out.floats, out.stride,
                                          panel(member, 0), member, team_.size());
    rounding_.columns(out, all_rows(), done.begin, done.end);
    if (!dispatch.heads) return {done.count(), out.width};
    const ops::Step& heads = step_of(*dispatch.heads);
    if (pass_.rows > dispatch.few_rows) {  // keys cost more than queries, and stand in the columns of few members
      team_.barrier();
      std::visit([&](const auto& step) { run_heads(step, member); }, heads);
    } else {
      std::visit([&](const auto& step) { complete_heads(step, done); }, heads);
    }
    return {done.count(), out.width};
  }

  // What a member does with the heads whose columns it completes.
  void complete_heads(const ops::AttentionPrep& s, Columns done) {
    for_completed(
        HeadPrep::units(s), done, [&](int unit) { return HeadPrep::columns(s, unit); },
        [&](int unit) {
          for (int r = 0; r < pass_.rows; ++r) run_head(s, unit, r);
        });
  }
  void complete_heads(const ops::DeltaPrep& s, Columns done) {
    for_completed(
        DeltaNet::prep_units(s), done, [&](int unit) { return DeltaNet::prep_columns(s, unit); },
        [&](int unit) { run_head(s, unit); });
  }
  template <class S>
  void complete_heads(const S& s, Columns) {
    ADZE_CHECK(false, "{} has no heads that stand in columns", ops::step_name(s));
  }
  template <class ColumnsOf, class F>
  void for_completed(int units, Columns done, ColumnsOf columns_of, F f) {
    for (int unit = 0; unit < units; ++unit) {
      const Columns columns = columns_of(unit);
      const int part = std::min(done.end, columns.end) - std::max(done.begin, columns.begin);
      const auto counter = static_cast<std::size_t>(unit);
      if (part > 0 && scratch_.countdowns.heads.complete(counter, part, columns.count())) f(unit);
    }
  }

  Progress run_columns(const ops::ProjectAdd& s, const Dispatch& dispatch, int member) {
    const BoundMatmul& m = products_of(dispatch.lead).front();
    const ActivationBuffer& out = buffer(s.out);
    const Share share = share_of(m.groups(), member, team_.size());
    m.kernel->run(matmul_args(m, buffer(s.in), pass_.rows, out.floats, out.stride, s.add, panel(member, 0)),
                  share.begin, share.end);
    const Columns done = columns_of(m, share);
    rounding_.columns(out, all_rows(), done.begin, done.end);
    return {done.count(), out.width};
  }

  Progress run_columns(const ops::GatedPair& s, const Dispatch& dispatch, int member) {
    const BoundMatmul &gate = products_of(dispatch.lead).front(), &up = products_of(dispatch.lead).back();
    const ActivationBuffer &in = buffer(s.in), &out = buffer(s.out);
    const GatedActivation act = gated_activation(s.activation).value();
    const Share share = share_of(gate.groups(), member, team_.size());
    const Columns done = columns_of(gate, share);
    const MatmulArgs gate_args = matmul_args(gate, in, pass_.rows, out.floats, out.stride, false, panel(member, 0));
    const auto gate_with = [&](const float* up_columns, std::size_t stride) {
      for (int r = 0; r < pass_.rows; ++r) {
        table_.gate(out.row(r) + done.begin, up_columns + static_cast<std::size_t>(r) * stride + done.begin, act,
                    done.count());
      }
    };
    if (s.up == nullptr) {
      gate.kernel->run(gate_args, share.begin, share.end);
      gate_with(buffer(s.side).floats + s.side_first, buffer(s.side).stride);
    } else if (gate.kernel == up.kernel && gate.tuning->pair_at_once) {
      const MatmulArgs up_args = matmul_args(up, in, pass_.rows, nullptr, 0, false, panel(member, 1));
      gate.kernel->gated(gate_args, up_args, act, share.begin, share.end);
    } else {
      const auto stride = static_cast<std::size_t>(schedule_.spare_stride);
      gate.kernel->run(gate_args, share.begin, share.end);
      up.kernel->run(matmul_args(up, in, pass_.rows, scratch_.spare, stride, false, panel(member, 1)), share.begin,
                     share.end);
      gate_with(scratch_.spare, stride);
    }
    rounding_.columns(out, all_rows(), done.begin, done.end);
    return {done.count(), out.width};
  }

  Progress run_columns(const ops::Route& s, const Dispatch& dispatch, int member) {
    const std::vector<BoundMatmul>& products = products_of(dispatch.lead);
    const Columns done = mixture_.route(products, buffer(s.in), pass_.rows, member);
    return {done.count(), static_cast<int>(s.weight->rows()) + (products.size() > 1 ? 1 : 0)};
  }

  Progress run_columns(const ops::Experts& s, const Dispatch& dispatch, int member) {
    const std::vector<BoundMatmul>& products = products_of(dispatch.lead);
    if (dispatch.lead.part == Stage::Part::gate_up) {
      mixture_.gate_up(s, products, member);
      return {};
    }
    const Columns done = mixture_.down(s, products, buffer(s.routes), buffer(s.out), pass_.rows, member);
    return {done.count(), buffer(s.out).width};
  }

  Progress run_columns(const ops::Head& s, const Dispatch& dispatch, int member) {
    const int wanted = static_cast<int>(pass_.wanted.size());
    if (wanted == 0) return {};
    const BoundMatmul& m = products_of(dispatch.lead).front();
    constexpr int kBlockGroups = backend::kLogitBlock / kGroupRows;  // whole blocks of logits for each member
    Share share = share_of((m.groups() + kBlockGroups - 1) / kBlockGroups, member, team_.size());
    share = {share.begin * kBlockGroups, std::min(share.end * kBlockGroups, m.groups())};
    const auto vocabulary = static_cast<std::size_t>(plan_.vocabulary_size);
    m.kernel->run(matmul_args(m, scratch_.head_input, wanted, logits_.data(), vocabulary, false, panel(member, 0)),
                  share.begin, share.end);
    const Columns done = columns_of(m, share);
    for (int i = 0; i < wanted && done.count() > 0; ++i) {
      float* part = logits_.data() + static_cast<std::size_t>(i) * vocabulary + done.begin;
      if (s.scale != 1.0f) table_.scale(part, s.scale, done.count());
      if (s.softcap != 0.0f) table_.softcap(part, s.softcap, done.count());
      float* maxima =
          maxima_.data() + static_cast<std::size_t>(i) * maxima_of_row() + done.begin / backend::kLogitBlock;
      if (table_.block_maxima(part, done.count(), maxima)) continue;
      std::atomic_ref(not_finite_[static_cast<std::size_t>(i)]).store(1, std::memory_order_relaxed);
    }
    return {done.count(), plan_.vocabulary_size};
  }

  template <class S>
  Progress run_columns(const S& s, const Dispatch&, int) {
    ADZE_CHECK(false, "{} is not shared by columns", ops::step_name(s));
  }

  // --- by heads ------------------------------------------------------------------------------------------------------

  void run_head(const ops::AttentionPrep& s, int unit, int r) {
    heads_.run(s, unit, r, *pass_.batch, buffer(s.in), buffer(s.out), buffer_or_null(s.gate));
  }
  void run_head(const ops::DeltaPrep& s, int unit) {
    delta_net_.prep(s, unit, *pass_.batch, states_, buffer(s.in), buffer(s.out));
  }

  void run_heads(const ops::AttentionPrep& s, int member) {
    const int units = HeadPrep::units(s);
    const Share share = share_of(pass_.rows * units, member, team_.size());
    for (int i = share.begin; i < share.end; ++i) run_head(s, i % units, i / units);
  }
  void run_heads(const ops::DeltaPrep& s, int member) {
    for (int unit = member; unit < DeltaNet::prep_units(s); unit += team_.size()) run_head(s, unit);
  }
  void run_heads(const ops::DeltaOut& s, int member) {
    for (int head = member; head < s.heads.value_heads; head += team_.size()) {
      delta_net_.out(finish_of(s), head, *pass_.batch);
    }
  }
  template <class S>
  void run_heads(const S& s, int) {
    ADZE_CHECK(false, "{} is not shared by heads", ops::step_name(s));
  }

  DeltaNet::Finish finish_of(const ops::DeltaOut& s) {
    return {s, buffer(s.in), buffer(s.gate), buffer(s.out), rounding_};
  }

  void run_attention(const ops::Attend& s, int member) {
    const ActivationBuffer *gate = buffer_or_null(s.gate), &out = buffer(s.out);
    attention_.run(s, *pass_.batch, buffer(s.in), gate, out, member);
    if (Attention::completes_heads(pass_.rows)) return;
    team_.barrier();
    for_rows({member, team_.size()}, pass_.rows, [&](int r) { attention_.finish_row(r, pass_.rows, gate, out); });
  }

  void run_states(const ops::DeltaScan& s, const Dispatch& dispatch, int member) {
    std::optional<DeltaNet::Finish> finish;
    if (dispatch.heads) finish.emplace(finish_of(std::get<ops::DeltaOut>(step_of(*dispatch.heads))));
    delta_net_.scan(s, *pass_.batch, states_, buffer(s.in), buffer(s.out), finish ? &*finish : nullptr,
                    scratch_.countdowns.heads, member, team_.size());
  }

  const ops::Plan plan_;
  const backend::PrepareOptions options_;
  const KernelTable& table_;
  const CpuSchedule schedule_;
  const Arena pack_memory_;
  FilePacks packs_;  // before the schedule goes, its thread has ended
  KvStore kv_;
  StateStore states_;
  const DeltaNet delta_net_;
  Scratch scratch_;
  ThreadTeam team_;
  const Rounding rounding_;
  const HeadPrep heads_;
  const Attention attention_;
  Mixture mixture_;
  backend::MemoryUse memory_;
  backend::StepObserver* observer_ = nullptr;
  std::vector<double>* seconds_ = nullptr;
  Pass pass_;
  std::vector<float> logits_;             // [wanted][vocabulary]
  std::vector<float> maxima_;             // [wanted][maxima_of_row()]
  std::vector<std::uint8_t> not_finite_;  // [wanted]: one of the row's logits is not, and its maxima mean nothing
  std::vector<float> observed_;
};

// The options with as many threads as the machine asks for where they say none.
backend::PrepareOptions with_threads(const backend::PrepareOptions& options, const CpuTopology& topology) {
  backend::PrepareOptions chosen = options;
  if (chosen.threads == 0) chosen.threads = choose_threads(topology).threads;
  return chosen;
}

}  // namespace

backend::MemoryUse estimate_memory(const ops::Plan& plan, const backend::PrepareOptions& asked) {
  const backend::PrepareOptions options = with_threads(asked, read_topology());
  backend::MemoryUse memory;
  const auto table = choose_table(options.kernel_set);
  const auto schedule = table ? make_schedule(plan, options, **table) : make_schedule(plan, options, kScalarTable);
  if (!schedule) return memory;  // prepare() will say why
  memory.weight_bytes = weight_bytes(*schedule);
  memory.scratch_bytes =
      scratch_bytes(*schedule, plan, options.max_batch_rows, options.threads) + DeltaNet::bytes(plan, options.threads);
  memory.bytes_per_slot = state_slot_bytes(plan);
  memory.state_bytes_reserved = memory.bytes_per_slot * static_cast<std::uint64_t>(options.max_slots);
  memory.bytes_per_page = kv_page_bytes(plan, backend::PageGroup::full, schedule->kv_format);
  memory.bytes_per_sliding_page = kv_page_bytes(plan, backend::PageGroup::sliding, schedule->kv_format);
  memory.kv_bytes_reserved = memory.bytes_per_page * static_cast<std::uint64_t>(options.max_pages) +
                             memory.bytes_per_sliding_page * static_cast<std::uint64_t>(options.max_sliding_pages);
  return memory;
}

Result<std::unique_ptr<backend::Prepared>> prepare(const ops::Plan& plan, const backend::PrepareOptions& asked) {
  ADZE_TRY_STATUS(backend::check_options(asked));
  const CpuTopology topology = read_topology();
  const backend::PrepareOptions options = with_threads(asked, topology);
  ADZE_TRY(const KernelTable* table, choose_table(options.kernel_set));
  ADZE_TRY(CpuSchedule schedule, make_schedule(plan, options, *table));
  ADZE_TRY(Arena packs, options.pack_in_memory ? pack_in_memory(schedule) : Arena());
  ADZE_TRY(KvStore kv, KvStore::reserve(plan, schedule.kv_format, options.max_pages, options.max_sliding_pages));
  ADZE_TRY(StateStore states, StateStore::reserve(plan, options.max_slots));
  ADZE_TRY(DeltaNet delta_net, DeltaNet::create(plan, *table, options.threads));
  ADZE_TRY(Scratch scratch, make_scratch(schedule, plan, options.max_batch_rows, options.threads));
  return std::make_unique<CpuPrepared>(plan, options, *table, std::move(schedule), std::move(packs), std::move(kv),
                                       std::move(states), std::move(delta_net), std::move(scratch),
                                       place_threads(topology, options.threads));
}

}  // namespace adze::cpu
