// All requests of one engine, one forward at a time. Single-threaded, without a clock, input or output: the same calls
// give the same steps and the same events. What a step does is planned by plan_step() (step_plan.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/kv_cache.hpp"
#include "engine/decoding.hpp"
#include "engine/request_state.hpp"
#include "engine/step_plan.hpp"
#include "engine/stepper.hpp"
#include "speculate/cost_table.hpp"
#include "speculate/drafter.hpp"
#include "speculate/gate.hpp"

namespace adze::engine {

struct RequestSpec {
  RequestId id = 0;                  // above every earlier one's
  std::vector<std::int32_t> prompt;  // checked: not empty, in the vocabulary, shorter than the context
  AnswerSpec answer;
  Digest root;        // of its cache keys
  int priority = 0;   // higher ones come first; among equals the earlier one
  bool reuse = true;  // looks for its beginning among what is computed, and leaves what it computes for others
  bool speculate = true;
  RequestId sibling = 0;  // an earlier request with the same prompt and root, whose computed prompt it shares; 0: none
  std::optional<double> start_by{}, finish_by{};  // on the clock of step(); past one of them the request fails
};

struct RequestCounts {
  std::int64_t computed_prompt_tokens = 0, reused_tokens = 0;
  cache::MissReason why_not_more = cache::MissReason::none;
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;  // after preemptions
  speculate::SpeculationStatistics speculation;
};

// What became of a request in a step.
struct RequestEvent {
  RequestId id = 0;
  std::string text;                                           // that became certain
  std::vector<std::int32_t> ids;                              // tokens that were added
  std::vector<sample::LogProbabilities> log_probabilities{};  // of ids, where they are asked for
  bool prompt_done = false;                                   // the first token was sampled in this step
  // At the end:
  std::shared_ptr<const Decoding> end{};  // how it ended; null while it goes on
  RequestCounts counts{};
};

// What the last step was, for traces and tests.
struct StepReport {
  StepPlan plan;
  int rows = 0;  // computed, drafted ones included
  std::vector<RequestId> preempted, admitted;
};

struct LoopOptions {
  int max_rows = 0;  // of a forward
  int max_running = 0;
  int vocabulary = 0;
  std::int64_t context = 0;
  speculate::DraftRules rules{};
  speculate::CostTable costs = speculate::CostTable::built_in();
  double draft_cost = 0;  // of the drafter, see speculate::Gate
};

class RequestLoop {
 public:
  // All outlive the loop; `drafter` may be null.
  RequestLoop(backend::Prepared& backend, cache::KvCache& cache, std::shared_ptr<const text::Tokenizer> tokenizer,
              speculate::Drafter* drafter, const LoopOptions& options);
  ~RequestLoop();

  void submit(RequestSpec spec);
  // Ends it within the next step or settle(), which frees everything it has. Of one that has ended or never was:
  // nothing happens.
  void cancel(RequestId id);

  // Plans and computes one forward; `now` is compared with deadlines. What happened is appended to `events`, in the
  // order of the requests. Each request's last event has `end`.
  void step(double now, std::vector<RequestEvent>& events);

  // Ends what was cancelled, without a step.
  void settle(std::vector<RequestEvent>& events) { report(events); }

  bool idle() const { return live_.empty(); }
  std::size_t size() const { return live_.size(); }  // requests that have not ended
  std::size_t waiting() const;                       // of them, those that do not run
  const StepReport& last_step() const { return report_; }
  std::uint64_t steps() const { return step_; }
  // Over every plan so far: two runs with the same calls have the same one.
  Digest route() const { return route_; }
  std::optional<RequestState> state(RequestId id) const;

 private:
  struct Live;

  Live& find(RequestId id);
  void move(Live& live, RequestState to);
  void note_deadlines(double now);
  void propose();
  bool may_draft(const Live& live) const;
  bool has_states() const { return cache_.options().slots > 0; }
  int running() const;
  RequestView view_of(const Live& live) const;
  StepPlan plan();
  void note(const StepPlan& plan);
  void preempt(Live& live);
  void admit(Live& live);
  void add_rows(Live& live, const PlannedRows& planned);
  void take_results();
  void keep(Live& live);
  void fail_first_running();
  void verify(Live& live, int& wanted);
  void wake_siblings(Live& first, const sample::Row& row);
  void end_siblings_wait(const Live& first);
  void report(std::vector<RequestEvent>& events);
  void end_finished();
  void end(Live& live);

  backend::Prepared& backend_;
  cache::KvCache& cache_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  speculate::Drafter* drafter_;
  LoopOptions options_;
  Stepper stepper_;
  sample::Scratch scratch_;
  std::vector<std::unique_ptr<Live>> live_;  // by priority, then id
  std::vector<Live*> in_batch_;              // in the order of their rows
  std::vector<speculate::DraftJob> jobs_;
  std::vector<Live*> asking_;  // of each job
  std::vector<RequestView> views_;
  StepReport report_;
  std::uint64_t step_ = 0;
  Digest route_{};
  std::vector<std::uint64_t> note_;
};

}  // namespace adze::engine
