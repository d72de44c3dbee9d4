#include "engine/request_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace adze::engine {

struct RequestLoop::Live {
  Live(RequestSpec given, cache::KvSequence kv, std::shared_ptr<const text::Tokenizer> tokenizer,
       const LoopOptions& options)
      : spec(std::move(given)),
        sequence{.ids = spec.prompt, .kv = std::move(kv)},
        gate(options.rules, options.draft_cost) {
    decoding = std::make_shared<Decoding>(sequence, std::move(spec.answer), std::move(tokenizer), options.context);
  }

  RequestId id() const { return spec.id; }
  std::int64_t prompt_length() const { return std::ssize(spec.prompt); }
  bool prompt_done() const { return decoding->sampled_tokens() > 0; }

  RequestSpec spec;
  RequestState state = RequestState::waiting;
  Sequence sequence;
  std::shared_ptr<Decoding> decoding;
  RequestCounts counts;
  speculate::Gate gate;
  std::vector<std::int32_t> draft;  // for this step
  int drafted_rows = 0;             // of it in the batch
  bool gate_closed = false;         // this step has no draft because the gate wants none
  std::uint64_t last_rows = 0;
  std::size_t reported_ids = 0;
  bool reported_prompt = false;
};

RequestLoop::RequestLoop(backend::Prepared& backend, cache::KvCache& cache,
                         std::shared_ptr<const text::Tokenizer> tokenizer, speculate::Drafter* drafter,
                         const LoopOptions& options)
    : backend_(backend),
      cache_(cache),
      tokenizer_(std::move(tokenizer)),
      drafter_(drafter),
      options_(options),
      stepper_(backend, options.max_rows),
      scratch_(options.vocabulary, options.context) {}

RequestLoop::~RequestLoop() = default;

void RequestLoop::submit(RequestSpec spec) {
  ADZE_CHECK(live_.empty() || std::ranges::all_of(live_, [&](const auto& l) { return l->id() < spec.id; }),
             "request {} is not new", spec.id);
  const bool computing = std::ranges::any_of(
      live_, [&](const auto& l) { return l->id() == spec.sibling && !l->prompt_done() && !l->decoding->finished(); });
  if (!computing) spec.sibling = 0;
  cache::KvSequence kv = cache_.open(spec.root);
  auto live = std::make_unique<Live>(std::move(spec), std::move(kv), tokenizer_, options_);
  const auto after = std::ranges::upper_bound(live_, live->spec.priority, std::ranges::greater{},
                                              [](const auto& other) { return other->spec.priority; });
  live_.insert(after, std::move(live));
}

void RequestLoop::cancel(RequestId id) {
  for (const auto& live : live_) {
    if (live->id() == id) live->decoding->cancel();
  }
}

std::size_t RequestLoop::waiting() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(live_, [](const auto& live) { return live->state != RequestState::running; }));
}

std::optional<RequestState> RequestLoop::state(RequestId id) const {
  for (const auto& live : live_) {
    if (live->id() == id) return live->state;
  }
  return std::nullopt;
}

RequestLoop::Live& RequestLoop::find(RequestId id) {
  const auto found = std::ranges::find(live_, id, [](const auto& live) { return live->id(); });
  ADZE_CHECK(found != live_.end(), "no request {}", id);
  return **found;
}

void RequestLoop::move(Live& live, RequestState to) {
  ADZE_CHECK(may_move(live.state, to), "request {} from {} to {}", live.id(), state_name(live.state), state_name(to));
  live.state = to;
}

void RequestLoop::note_deadlines(double now) {
  for (const auto& live : live_) {
    if (live->decoding->finished()) continue;
    const auto late = [&](std::string_view what, double by) {
      live->decoding->fail({.code = ErrorCode::timed_out,
                            .message = fmt::format("the request {} ({:.1f} s too late)", what, now - by),
                            .hint = "ask again when there is less to do, or with more time"});
    };
    if (live->spec.finish_by && now > *live->spec.finish_by) {
      late("was not answered in time", *live->spec.finish_by);
    } else if (live->state == RequestState::waiting && live->spec.start_by && now > *live->spec.start_by) {
      late("waited in line for too long", *live->spec.start_by);
    }
  }
}

// --- what to compute -------------------------------------------------------------------------------------------------

// Not behind the prompt's last row: what is kept of the prompt ends there.
bool RequestLoop::may_draft(const Live& live) const {
  return drafter_ != nullptr && live.spec.speculate && live.state == RequestState::running && live.prompt_done() &&
         !live.decoding->finished() && live.sequence.waiting() == 1;
}

void RequestLoop::propose() {
  jobs_.clear();
  asking_.clear();
  const auto decoding = static_cast<int>(std::ranges::count_if(
      live_, [](const auto& live) { return live->state == RequestState::running && live->sequence.waiting() == 1; }));
  for (const auto& live : live_) {
    live->draft.clear();
    live->gate_closed = false;
    if (!may_draft(*live)) continue;
    // The token that the last row gives is not drafted, and nothing behind the end of the answer.
    const auto most =
        static_cast<int>(std::min<std::int64_t>(options_.rules.longest, live->decoding->most_tokens_left() - 1));
    if (most <= 0) continue;
    const int wanted = live->gate.choose(options_.costs, decoding - 1, most, live->sequence.kv.length());
    live->gate_closed = wanted == 0;
    if (wanted == 0) continue;
    jobs_.push_back({.request = live->id(),
                     .text = live->sequence.ids,
                     .prompt_length = live->prompt_length(),
                     .most = wanted,
                     .sampler = &live->decoding->sampler()});
    asking_.push_back(live.get());
  }
  if (jobs_.empty()) return;
  drafter_->propose(jobs_);
  // Now that it is known how many rows the others have.
  int others = decoding - 1;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    Live& live = *asking_[i];
    live.draft = std::move(jobs_[i].draft);
    if (live.draft.empty()) continue;
    const int size =
        live.gate.choose(options_.costs, others, static_cast<int>(live.draft.size()), live.sequence.kv.length());
    live.gate_closed = size == 0;
    live.draft.resize(static_cast<std::size_t>(size));
    others += size;
  }
}

RequestView RequestLoop::view_of(const Live& live) const {
  const cache::KvSequence& kv = live.sequence.kv;
  RequestView view{.id = live.id(),
                   .state = live.state,
                   .computed = kv.length(),
                   .length = live.sequence.length(),
                   .stop = kv.next_stop(live.prompt_length()),
                   .draft = static_cast<int>(live.draft.size()),
                   .last_rows = live.last_rows,
                   .holds_slot = kv.slot() >= 0,
                   .waits_for_sibling = live.spec.sibling != 0};
  for (const cache::Group group : cache::kEachGroup) {
    HeldPages& held = view.held[cache::index_of(group)];
    held.pages = std::ssize(kv.pages(group));
    const std::int64_t next = backend::pages_for(kv.length() + 1);
    held.last_is_shared = kv.needs(group, kv.length() + 1) > std::max<std::int64_t>(next - held.pages, 0);
  }
  return view;
}

StepPlan RequestLoop::plan() {
  for (;;) {
    views_.clear();
    for (const auto& live : live_) {
      if (!live->decoding->finished()) views_.push_back(view_of(*live));
    }
    const cache::CacheOptions& cache = cache_.options();
    StepInput input{.requests = views_,
                    .obtainable_slots = cache_.obtainable_slots(),
                    .needs_slots = cache.slots > 0,
                    .page_tokens = cache.page_tokens,
                    .window_pages = backend::pages_for(cache.window + options_.max_rows) + 1,
                    .max_rows = options_.max_rows,
                    .max_running = options_.max_running,
                    .may_admit = report_.preempted.empty()};
    for (const cache::Group group : cache::kEachGroup) {
      input.obtainable[cache::index_of(group)] = cache_.obtainable(group);
    }
    input.groups = {cache.full_pages > 0, cache.sliding_pages > 0};
    StepPlan plan = plan_step(input);
    note(plan);
    if (plan.preempt != 0) {
      preempt(find(plan.preempt));
    } else if (plan.admit != 0) {
      admit(find(plan.admit));
    } else {
      return plan;
    }
  }
}

// The route: what was planned, in order.
void RequestLoop::note(const StepPlan& plan) {
  note_.assign({step_, plan.preempt, plan.admit, plan.rows.size()});
  for (const PlannedRows& rows : plan.rows) {
    note_.insert(note_.end(), {rows.id, static_cast<std::uint64_t>(rows.rows), static_cast<std::uint64_t>(rows.draft)});
  }
  const Digest step = digest(std::as_bytes(std::span(note_)));
  const Digest both[] = {route_, step};
  route_ = digest(std::as_bytes(std::span(both)));
}

void RequestLoop::preempt(Live& live) {
  move(live, RequestState::preempted);
  report_.preempted.push_back(live.id());
  ++live.counts.preemptions;
  if (live.spec.reuse) {
    live.sequence.kv.publish_tail(live.sequence.ids, cache::KvSequence::State::hand_over);
  } else {
    live.sequence.kv.clear();
  }
  live.sequence.replay = 0;
  live.draft.clear();
}

// It takes over what is there of its text: all of it but the last token, whose logits are wanted.
void RequestLoop::admit(Live& live) {
  const bool resumes = live.state == RequestState::preempted;
  move(live, RequestState::running);
  report_.admitted.push_back(live.id());
  const auto reuse = live.spec.reuse ? live.sequence.kv.attach(live.sequence.ids, live.sequence.length())
                                     : cache::Reuse{.why_not_more = cache::MissReason::new_prefix};
  if (resumes) {
    live.counts.recomputed_tokens += live.sequence.length() - 1 - reuse.tokens;
  } else {
    live.counts.reused_tokens = reuse.tokens;
    live.counts.why_not_more = reuse.why_not_more;
  }
}

void RequestLoop::add_rows(Live& live, const PlannedRows& planned) {
  Sequence& sequence = live.sequence;
  const std::int64_t last = sequence.length() - 1;
  auto rows = static_cast<std::int64_t>(planned.rows);
  const std::int64_t stop = sequence.kv.next_stop(live.prompt_length());
  if (stop > sequence.kv.length()) rows = std::min(rows, stop - sequence.kv.length());
  live.draft.resize(std::min(live.draft.size(), static_cast<std::size_t>(planned.draft)));
  const auto added = stepper_.add(
      sequence, static_cast<int>(rows), [last](std::int64_t position) { return position == last; }, live.draft);
  if (!added) {
    live.decoding->fail(added.error());
    return;
  }
  live.drafted_rows = static_cast<int>(live.draft.size());
  live.last_rows = step_;
  if (*added > 0) in_batch_.push_back(&live);
}

void RequestLoop::step(double now, std::vector<RequestEvent>& events) {
  ++step_;
  report_ = {};
  in_batch_.clear();
  stepper_.begin();
  note_deadlines(now);
  end_finished();  // cancelled and late ones, whose pages the others may need now
  propose();
  report_.plan = plan();
  for (const PlannedRows& planned : report_.plan.rows) add_rows(find(planned.id), planned);
  if (in_batch_.empty() && report_.plan.rows.empty()) fail_first_running();
  report_.rows = stepper_.rows();
  if (const Status status = stepper_.run(); !status) {
    for (Live* live : in_batch_) {
      live->decoding->fail(status.error());
      live->sequence.kv.clear();
    }
  } else {
    take_results();
  }
  report(events);
}

// --- what came of it -------------------------------------------------------------------------------------------------

void RequestLoop::take_results() {
  int wanted = 0;
  // The vector grows by siblings, whose rows are those of the first.
  const std::vector<Live*> computed = in_batch_;
  for (Live* live : computed) {
    Sequence& sequence = live->sequence;
    // A recurrent model can go on only from where a state was kept: one row before the prompt's end, which serves both
    // the same prompt and longer ones. Pages can be taken over up to any position, so there the end itself is kept.
    const bool tail = live->spec.reuse && !live->prompt_done() && sequence.waiting() == (has_states() ? 1 : 0);
    if (tail) {
      sequence.kv.publish_tail(sequence.ids, cache::KvSequence::State::copy);
    } else {
      keep(*live);
    }
    if (sequence.waiting() == 0) verify(*live, wanted);
  }
}

// What was computed becomes known to others, or what the window has left goes without a word.
void RequestLoop::keep(Live& live) {
  if (live.spec.reuse) {
    live.sequence.kv.publish(live.sequence.ids);
  } else {
    live.sequence.kv.release_left();
  }
}

// Samples from the row of the last token and, while the samples are what was drafted, from the rows behind it: each as
// if it had been computed alone.
void RequestLoop::verify(Live& live, int& wanted) {
  const int first = wanted;
  const int drafted = std::exchange(live.drafted_rows, 0);
  wanted += 1 + drafted;
  if (!live.prompt_done()) wake_siblings(live, stepper_.row(first));
  int accepted = 0;
  for (;;) {
    const std::int32_t token = live.decoding->accept(stepper_.row(first + accepted), scratch_);
    if (live.decoding->finished() || accepted == drafted) break;
    if (token != live.draft[static_cast<std::size_t>(accepted)]) break;
    ++accepted;
  }
  if (drafted > 0) {
    Stepper::accept_draft(live.sequence, accepted);
    keep(live);
    live.gate.verified(drafted, accepted);
    drafter_->verified(live.id(), std::span(live.draft).first(static_cast<std::size_t>(drafted)), accepted);
  } else if (drafter_ != nullptr && live.spec.speculate) {
    live.gate.plain(live.gate_closed);
  }
}

// Requests for other answers to the same prompt go on from it, each with its own noise.
void RequestLoop::wake_siblings(Live& first, const sample::Row& row) {
  for (const auto& live : live_) {
    if (live->spec.sibling != first.id() || live->decoding->finished()) continue;
    live->spec.sibling = 0;
    if (live->state != RequestState::waiting || running() >= options_.max_running) continue;
    auto fork = first.sequence.kv.fork();
    if (!fork) continue;  // no slot: it computes, or finds, the prompt by itself
    live->sequence.kv = std::move(*fork);
    move(*live, RequestState::running);
    live->counts.reused_tokens = live->prompt_length();
    live->decoding->accept(row, scratch_);
  }
}

void RequestLoop::end_siblings_wait(const Live& first) {
  RequestId next = 0;  // the first of them computes the prompt for the others now
  for (const auto& live : live_) {
    // One that has ended in this step already would never hand on to the others.
    if (live->spec.sibling != first.id() || live->decoding->finished()) continue;
    live->spec.sibling = next;
    if (next == 0) next = live->id();
  }
}

int RequestLoop::running() const {
  return static_cast<int>(
      std::ranges::count_if(live_, [](const auto& live) { return live->state == RequestState::running; }));
}

// Nothing could be planned although requests run: the oldest needs more than the whole pool has.
void RequestLoop::fail_first_running() {
  for (const auto& live : live_) {
    if (live->state != RequestState::running || live->decoding->finished()) continue;
    const Status status = live->sequence.kv.reserve(live->sequence.kv.length() + 1);
    ADZE_CHECK(!status, "request {} has room, but no rows", live->id());
    live->decoding->fail(status.error());
    return;
  }
}

void RequestLoop::end_finished() {
  for (const auto& live : live_) {
    if (live->decoding->finished() && !ended(live->state)) end(*live);
  }
}

void RequestLoop::report(std::vector<RequestEvent>& events) {
  end_finished();
  for (const auto& live : live_) {
    Decoding& decoding = *live->decoding;
    RequestEvent event;
    event.id = live->id();
    event.text = decoding.take_text();
    const auto from = static_cast<std::ptrdiff_t>(live->reported_ids);
    event.ids.assign(decoding.ids().begin() + from, decoding.ids().end());
    if (!decoding.log_probabilities().empty()) {
      event.log_probabilities.assign(decoding.log_probabilities().begin() + from, decoding.log_probabilities().end());
    }
    live->reported_ids = decoding.ids().size();
    event.prompt_done = live->prompt_done() && !std::exchange(live->reported_prompt, live->prompt_done());
    if (decoding.finished()) {
      event.counts = live->counts;
      event.end = live->decoding;
    }
    if (event.end || event.prompt_done || !event.text.empty() || !event.ids.empty()) events.push_back(std::move(event));
  }
  std::erase_if(live_, [](const auto& live) { return ended(live->state); });
}

void RequestLoop::end(Live& live) {
  switch (live.decoding->finish()) {
    case FinishReason::stop:
    case FinishReason::length: move(live, RequestState::finished); break;
    case FinishReason::cancelled: move(live, RequestState::cancelled); break;
    case FinishReason::error: move(live, RequestState::failed); break;
  }
  const std::int64_t of_prompt = std::min(live.sequence.kv.length(), live.prompt_length());
  live.counts.computed_prompt_tokens = std::max<std::int64_t>(of_prompt - live.counts.reused_tokens, 0);
  if (live.spec.reuse && live.state != RequestState::failed && live.sequence.kv.length() > 0) {
    live.sequence.kv.publish_tail(live.sequence.ids, cache::KvSequence::State::hand_over);
  } else {
    live.sequence.kv.clear();
  }
  if (drafter_ != nullptr) drafter_->forget(live.id());
  live.counts.speculation = live.gate.statistics();
  end_siblings_wait(live);
}

}  // namespace adze::engine
