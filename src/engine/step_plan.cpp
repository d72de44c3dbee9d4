#include "engine/step_plan.hpp"

#include <algorithm>

#include "engine/policy.hpp"

namespace adze::engine {
namespace {

std::int64_t waiting_rows(const RequestView& request) { return request.length - request.computed; }
bool runs(const RequestView& request) { return request.state == RequestState::running; }
bool decodes(const RequestView& request) { return runs(request) && waiting_rows(request) == 1; }
bool computes_prompt(const RequestView& request) { return runs(request) && waiting_rows(request) > 1; }
bool may_start(const RequestView& request) { return !runs(request) && !request.waits_for_sibling; }

class Planner {
 public:
  explicit Planner(const StepInput& input) : in_(input), free_(input.obtainable), left_(input.max_rows) {}

  StepPlan plan() {
    const bool prompts_wait =
        std::ranges::any_of(in_.requests, [](const RequestView& r) { return computes_prompt(r) || may_start(r); });
    if (prompts_wait) left_ -= std::min(std::max(in_.max_rows / policy::kPromptShare, 1), in_.max_rows - 1);
    decode();
    if (plan_.preempt != 0) return {.preempt = plan_.preempt, .rows = {}};
    add_drafts();
    left_ = in_.max_rows - used_;
    go_on_with_prompts();
    if (plan_.preempt != 0) return {.preempt = plan_.preempt, .rows = {}};
    if (const RequestId next = in_.may_admit ? admit() : 0; next != 0) return {.admit = next, .rows = {}};
    return std::move(plan_);
  }

 private:
  PageCounts needs(const RequestView& request, std::int64_t rows) const {
    PageCounts pages{};
    for (std::size_t g = 0; g < cache::kGroups; ++g) {
      if (!in_.groups[g] || rows == 0) continue;
      const HeldPages& held = request.held[g];
      const std::int64_t wanted = (request.computed + rows + in_.page_tokens - 1) / in_.page_tokens;
      pages[g] = std::max<std::int64_t>(wanted - held.pages, 0) + (held.last_is_shared ? 1 : 0);
    }
    return pages;
  }

  bool fits(const PageCounts& pages) const {
    for (std::size_t g = 0; g < cache::kGroups; ++g) {
      if (pages[g] > free_[g]) return false;
    }
    return true;
  }

  void take(const PageCounts& pages) {
    for (std::size_t g = 0; g < cache::kGroups; ++g) free_[g] -= pages[g];
  }

  void use_rows(std::int64_t rows) {
    left_ -= static_cast<int>(rows);
    used_ += static_cast<int>(rows);
  }

  // Who gives room: the newest that computes its prompt, else the newest that decodes; never the oldest that runs.
  RequestId victim() const {
    const auto oldest = std::ranges::find_if(in_.requests, runs);
    RequestId found = 0;
    for (auto r = in_.requests.rbegin(); r != in_.requests.rend() && found == 0; ++r) {
      if (computes_prompt(*r) && r->id != oldest->id) found = r->id;
    }
    for (auto r = in_.requests.rbegin(); r != in_.requests.rend() && found == 0; ++r) {
      if (decodes(*r) && r->id != oldest->id) found = r->id;
    }
    return found;
  }

  // A row for each, those that waited longest first.
  void decode() {
    for (const RequestView& request : in_.requests) {
      if (decodes(request)) decoding_.push_back(&request);
    }
    std::ranges::stable_sort(decoding_, {}, &RequestView::last_rows);
    if (std::ssize(decoding_) > left_) decoding_.resize(static_cast<std::size_t>(left_));
    for (const RequestView* request : decoding_) {
      const PageCounts pages = needs(*request, 1);
      if (!fits(pages)) {
        plan_.preempt = victim();
        return;
      }
      take(pages);
      use_rows(1);
      plan_.rows.push_back({.id = request->id, .rows = 1});
    }
  }

  void add_drafts() {
    for (std::size_t i = 0; i < plan_.rows.size(); ++i) {
      const RequestView& request = *decoding_[i];
      const PageCounts one = needs(request, 1);
      for (int draft = std::min(request.draft, left_); draft > 0; --draft) {
        PageCounts more = needs(request, 1 + draft);
        for (std::size_t g = 0; g < cache::kGroups; ++g) more[g] -= one[g];
        if (!fits(more)) continue;
        take(more);
        use_rows(draft);
        plan_.rows[i].draft = draft;
        break;
      }
    }
  }

  // The most rows, up to `rows`, for which there are pages.
  std::int64_t affordable(const RequestView& request, std::int64_t rows) const {
    for (std::size_t g = 0; g < cache::kGroups; ++g) {
      if (!in_.groups[g]) continue;
      const HeldPages& held = request.held[g];
      const std::int64_t more = free_[g] - (held.last_is_shared ? 1 : 0);
      if (more < 0) return 0;
      rows = std::min(rows, (held.pages + more) * in_.page_tokens - request.computed);
    }
    return std::max<std::int64_t>(rows, 0);
  }

  void go_on_with_prompts() {
    bool oldest = true;
    for (const RequestView& request : in_.requests) {
      if (!runs(request)) continue;
      if (computes_prompt(request) && left_ > 0) {
        std::int64_t rows = std::min<std::int64_t>(left_, waiting_rows(request));
        if (request.stop > request.computed) rows = std::min(rows, request.stop - request.computed);
        rows = affordable(request, rows);
        if (rows > 0) {
          take(needs(request, rows));
          use_rows(rows);
          plan_.rows.push_back({.id = request.id, .rows = static_cast<int>(rows)});
        } else if (oldest && plan_.rows.empty()) {
          plan_.preempt = victim();
          if (plan_.preempt != 0) return;
        }
      }
      oldest = false;
    }
  }

  // The first in line, if the whole of its text fits beside what the running ones will need next, and there are rows
  // for it. Nobody overtakes it.
  RequestId admit() const {
    const auto next = std::ranges::find_if(in_.requests, may_start);
    const auto running = std::ranges::count_if(in_.requests, runs);
    if (next == in_.requests.end() || left_ <= 0 || running >= in_.max_running) return 0;
    if (in_.needs_slots && in_.obtainable_slots <= 0) return 0;
    if (running == 0) return next->id;  // nobody will give more room
    PageCounts wanted = wanted_for(*next, waiting_rows(*next) + 1);
    for (const RequestView& request : in_.requests) {
      if (!runs(request)) continue;
      const PageCounts more = wanted_for(request, waiting_rows(request) + in_.page_tokens);
      for (std::size_t g = 0; g < cache::kGroups; ++g) wanted[g] += more[g];
    }
    for (std::size_t g = 0; g < cache::kGroups; ++g) {
      if (wanted[g] > in_.obtainable[g]) return 0;
    }
    return next->id;
  }

  // Like needs(), but sliding layers never want more than their window.
  PageCounts wanted_for(const RequestView& request, std::int64_t rows) const {
    PageCounts pages = needs(request, rows);
    std::int64_t& sliding = pages[cache::index_of(cache::Group::sliding)];
    sliding = std::min(sliding, in_.window_pages);
    return pages;
  }

  const StepInput& in_;
  PageCounts free_;
  int left_;
  int used_ = 0;
  std::vector<const RequestView*> decoding_;
  StepPlan plan_;
};

}  // namespace

StepPlan plan_step(const StepInput& input) { return Planner(input).plan(); }

}  // namespace adze::engine
