#include "engine/core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "engine/input_recorder.hpp"
#include "engine/layer_dump.hpp"
#include "engine/options.hpp"
#include "engine/policy.hpp"
#include "sample/log_probabilities.hpp"

namespace adze::engine {
namespace {

// Detaches the backend's observer again, whatever happens.
class Observing {
 public:
  Observing(backend::Prepared& backend, backend::StepObserver& observer) : backend_(backend) {
    backend_.observe(&observer);
  }
  ~Observing() { backend_.observe(nullptr); }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  backend::Prepared& backend_;
};

cache::CacheOptions cache_options(const CoreParts& parts) {
  return {.page_tokens = backend::kPageTokens,
          .full_pages = parts.pages,
          .sliding_pages = parts.sliding_pages,
          .slots = parts.slots,
          .window = parts.window};
}

LoopOptions loop_options(const CoreParts& parts) {
  int running = parts.max_running > 0 ? parts.max_running : policy::kMaxRunning;
  if (parts.slots > 0) running = std::min(running, parts.slots);
  return {.max_rows = parts.max_batch_rows,
          .max_running = running,
          .vocabulary = parts.info.vocabulary,
          .context = parts.info.context,
          .rules = parts.slots > 0 ? speculate::DraftRules::recurrent() : speculate::DraftRules::attention(),
          .costs = parts.costs,
          .draft_cost = parts.draft_cost};
}

}  // namespace

std::vector<TokenLogprobs> public_logprobs(const std::vector<sample::LogProbabilities>& from) {
  std::vector<TokenLogprobs> to;
  for (const sample::LogProbabilities& at : from) {
    TokenLogprobs& token = to.emplace_back();
    token.drawn = {at.drawn.id, at.drawn.log_probability};
    for (const auto& [id, value] : at.top) token.top.push_back({id, value});
  }
  return to;
}

void Core::Bytes::copy_page(cache::Group group, std::int32_t from, std::int32_t to) {
  backend_.copy_page(group == cache::Group::full ? backend::PageGroup::full : backend::PageGroup::sliding, from, to);
}

Core::Core(CoreParts parts)
    : parts_(std::move(parts)),
      bytes_(*parts_.backend),
      cache_(cache_options(parts_), bytes_),
      loop_(*parts_.backend, cache_, parts_.tokenizer, parts_.drafter.get(), loop_options(parts_)),
      desk_(loop_, parts_.host) {}

Status Core::check_ids(std::span<const std::int32_t> ids) const {
  if (ids.empty()) return fail(ErrorCode::invalid_argument, "there are no tokens to start from", "give at least one");
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= info().vocabulary) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("token id {} is not in the vocabulary (0 to {})", id, info().vocabulary - 1));
    }
  }
  return {};
}

Status Core::check_prompt(std::span<const std::int32_t> ids, std::int64_t max_tokens) const {
  ADZE_TRY_STATUS(check_ids(ids));
  const std::int64_t tokens = std::ssize(ids);
  const std::int64_t most = max_tokens == 0 ? info().context : info().context - 1;
  if (tokens <= most) return {};
  return fail(ErrorCode::context_full,
              fmt::format("the prompt has {} tokens, but the context holds {}{}", tokens, info().context,
                          tokens == info().context ? " and an answer needs room" : ""),
              "shorten the prompt, or load the model with a larger context");
}

Result<std::vector<std::shared_ptr<Ticket>>> Core::submit(std::span<const adze::Request> requests, int copies) {
  if (copies < 1 || copies > policy::kMaxWaiting) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} answers to one prompt; 1 to {} are possible", copies, policy::kMaxWaiting));
  }
  std::vector<Desk::Order> orders;
  for (const adze::Request& request : requests) ADZE_TRY_STATUS(add_orders(request, copies, orders));
  return desk_.submit(std::move(orders));
}

Status Core::add_orders(const adze::Request& request, int copies, std::vector<Desk::Order>& orders) {
  for (const auto& [name, seconds] : {std::pair("start_within_seconds", request.start_within_seconds),
                                      std::pair("finish_within_seconds", request.finish_within_seconds)}) {
    if (seconds && !(*seconds > 0)) {
      return fail(ErrorCode::invalid_argument, fmt::format("{} is {}, but must be above 0", name, *seconds));
    }
  }
  const GenerateOptions& options = request.options;
  const std::uint64_t seed = options.sampling.seed ? *options.sampling.seed : parts_.host.seed();
  Digest root = parts_.root;
  if (!options.cache_salt.empty()) {
    const Digest both[] = {parts_.root, digest(options.cache_salt)};
    root = digest(std::as_bytes(std::span(both)));
  }
  for (int i = 0; i < copies; ++i) {
    const std::uint64_t own_seed = seed + static_cast<std::uint64_t>(i);
    ADZE_TRY(AnswerSpec answer, make_answer(options, own_seed));
    ADZE_TRY_STATUS(check_prompt(request.prompt, answer.max_tokens));
    orders.push_back({.spec = {.prompt = request.prompt,
                               .answer = std::move(answer),
                               .root = root,
                               .priority = request.priority,
                               .reuse = options.reuse_prefix,
                               .speculate = options.speculate,
                               .start_by = request.start_within_seconds,
                               .finish_by = request.finish_within_seconds},
                      .seed = own_seed,
                      .cancelled = options.cancelled,
                      .copy = i > 0});
  }
  return {};
}

Result<Generation> Core::finish(const Ticket& ticket, const RequestEvent& last) const {
  const Decoding& answer = *last.end;
  if (answer.error()) return tl::unexpected(*answer.error());
  const RequestCounts& counts = last.counts;
  const speculate::SpeculationStatistics& drafts = counts.speculation;
  Generation result;
  result.ids = answer.ids();
  result.text = answer.text();
  result.finish = answer.finish();
  result.stop_match = answer.stop_match();
  result.logits_hash = answer.logits_hash();
  result.logprobs = public_logprobs(answer.log_probabilities());
  result.seed = ticket.seed;
  const bool began = answer.sampled_tokens() > 0;
  const double first = began ? ticket.first_token : ticket.finished;
  result.statistics = {.prompt_tokens = counts.computed_prompt_tokens,
                       .reused_tokens = counts.reused_tokens,
                       .not_reused = std::string(cache::miss_reason_name(counts.why_not_more)),
                       .generated_tokens = answer.sampled_tokens(),
                       .drafted_tokens = drafts.drafted,
                       .accepted_tokens = drafts.accepted,
                       .forwards = answer.sampled_tokens() - drafts.accepted,
                       .preemptions = counts.preemptions,
                       .recomputed_tokens = counts.recomputed_tokens,
                       .prompt_seconds = first - ticket.submitted,
                       .generate_seconds = ticket.finished - first,
                       .first_token_seconds = first - ticket.submitted};
  return result;
}

EngineStatistics Core::statistics() {
  return desk_.alone([&] {
    const cache::CacheStatistics counts = cache_.statistics();
    EngineStatistics s;
    s.steps = static_cast<std::int64_t>(loop_.steps());
    s.waiting = loop_.waiting();
    s.running = loop_.size() - s.waiting;
    for (const cache::Group group : cache::kEachGroup) {
      s.pages_in_use += cache_.in_use(group);
      s.pages += cache_.capacity(group);
      s.pages_kept += cache_.capacity(group) - cache_.in_use(group) - cache_.free_pages(group);
      s.evicted_pages += counts.evicted_pages[cache::index_of(group)];
    }
    s.slots_in_use = cache_.slots_in_use();
    s.slots = parts_.slots;
    s.prefix_lookups = counts.lookups;
    s.prefix_hits = counts.hits;
    s.reused_tokens = counts.reused_tokens;
    s.route = to_hex(loop_.route());
    return s;
  });
}

ForwardWork Core::forward_work(const ops::ForwardRows& forward) const {
  ADZE_CHECK(parts_.plan != nullptr, "an engine without a plan");
  const backend::MemoryUse memory = parts_.backend->memory();
  const auto page = static_cast<double>(memory.bytes_per_page + memory.bytes_per_sliding_page);
  ops::Work work = ops::work_of(*parts_.plan, forward, page / backend::kPageTokens);
  if (!parts_.multiplies_bytes) work = ops::in_floats(work);
  return {.weight_bytes = work.weight_bytes,
          .cache_bytes = work.cache_bytes,
          .byte_products = work.byte_products,
          .float_products = work.float_products};
}

Status Core::evaluate(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t)>& wanted,
                      const Engine::OnLogits& on_logits) {
  return desk_.alone([&] { return evaluate_now(ids, wanted, on_logits); });
}

Status Core::evaluate_now(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t)>& wanted,
                          const Engine::OnLogits& on_logits) {
  ADZE_TRY_STATUS(check_ids(ids));
  if (std::ssize(ids) > info().context) {
    return fail(ErrorCode::context_full,
                fmt::format("{} tokens were given, but the context holds {}", ids.size(), info().context),
                "give fewer, or load the model with a larger context");
  }
  const std::int64_t row_bytes = static_cast<std::int64_t>(info().vocabulary) * 4;
  const std::int64_t most_wanted = std::max<std::int64_t>(limits::kMaxLogitBytesAtOnce / row_bytes, 1);
  Sequence sequence{.ids = {ids.begin(), ids.end()}, .kv = cache_.open(parts_.root)};
  Stepper stepper(*parts_.backend, parts_.max_batch_rows);
  while (sequence.waiting() > 0) {
    // As many rows as a batch holds, or up to the last wanted one whose logits still fit.
    int rows = 0;
    std::int64_t wanted_rows = 0;
    while (rows < std::min<std::int64_t>(parts_.max_batch_rows, sequence.waiting())) {
      wanted_rows += wanted(sequence.kv.length() + rows) ? 1 : 0;
      if (wanted_rows > most_wanted) break;
      ++rows;
    }
    stepper.begin();
    ADZE_TRY([[maybe_unused]] const int added, stepper.add(sequence, rows, wanted));
    ADZE_TRY_STATUS(stepper.run());
    for (int i = 0; i < stepper.wanted_count(); ++i) {
      if (!sample::is_finite(stepper.row(i))) {
        return fail(ErrorCode::non_finite,
                    fmt::format("the model produced a logit at position {} that is not a finite number",
                                stepper.wanted_position(i)),
                    "the model file may be damaged; `adze inspect` and a fresh download tell");
      }
    }
    for (int i = 0; i < stepper.wanted_count(); ++i) on_logits(stepper.wanted_position(i), stepper.logits(i));
  }
  return {};
}

Result<std::vector<Engine::LayerDump>> Core::dump_layers(std::span<const std::int32_t> ids) {
  ADZE_CHECK(parts_.plan != nullptr, "an engine without a plan");
  LayerRecorder recorder(*parts_.plan);
  ADZE_TRY_STATUS(desk_.alone([&] {
    const Observing observing(*parts_.backend, recorder);
    return evaluate_now(ids, [](std::int64_t) { return true; }, [](std::int64_t, std::span<const float>) {});
  }));
  return recorder.take();
}

Result<std::vector<Engine::InputSquares>> Core::measure_inputs(std::span<const std::vector<std::int32_t>> windows,
                                                               const std::function<bool(std::size_t)>& go_on) {
  ADZE_CHECK(parts_.plan != nullptr, "an engine without a plan");
  InputRecorder recorder(*parts_.plan);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    // Nobody needs logits: an observed batch computes all of its rows in all layers.
    ADZE_TRY_STATUS(desk_.alone([&] {
      const Observing observing(*parts_.backend, recorder);
      return evaluate_now(windows[i], [](std::int64_t) { return false; }, [](std::int64_t, std::span<const float>) {});
    }));
    ADZE_TRY_STATUS(recorder.check());
    if (go_on && !go_on(i + 1)) break;
  }
  return recorder.take();
}

Result<AnswerSpec> Core::make_answer(const GenerateOptions& options, std::uint64_t seed) {
  sample::SamplerParameters parameters = to_parameters(options.sampling);
  parameters.seed = seed;
  const std::span<const std::int32_t> ends = parts_.tokenizer->end_of_generation();
  parameters.banned = options.banned_ids;
  parameters.allowed = options.allowed_ids;
  if (options.ignore_eos) parameters.banned.insert(parameters.banned.end(), ends.begin(), ends.end());
  if (options.top_logprobs >= 0) ADZE_TRY_STATUS(sample::check_top_log_probabilities(options.top_logprobs));
  if (options.sampling.dry_multiplier > 0) {
    ADZE_TRY(parameters.dry_breakers, dry_breakers(options.sampling.dry_sequence_breakers));
  }
  ADZE_TRY(const std::int64_t max_tokens, check_max_tokens(options.max_tokens));
  ADZE_TRY(std::vector<std::int32_t> stop_ids, check_stop_ids(options.stop_ids, info().vocabulary));
  if (!options.ignore_eos) stop_ids.insert(stop_ids.end(), ends.begin(), ends.end());
  std::sort(stop_ids.begin(), stop_ids.end());
  ADZE_TRY(StopMatcher stops, StopMatcher::create(options.stop));
  ADZE_TRY(sample::Sampler sampler, sample::Sampler::create(std::move(parameters), info().vocabulary));
  return AnswerSpec{.sampler = std::move(sampler),
                    .stops = std::move(stops),
                    .stop_ids = std::move(stop_ids),
                    .max_tokens = max_tokens,
                    .hash_logits = options.hash_logits,
                    .top_logprobs = options.top_logprobs,
                    .token_mask = options.token_mask};
}

Result<std::vector<std::int32_t>> Core::dry_breakers(const std::vector<std::string>& texts) {
  const std::lock_guard lock(breakers_mutex_);
  if (texts != breaker_texts_) {
    ADZE_TRY(breaker_ids_, find_breakers(*parts_.tokenizer, texts));
    breaker_texts_ = texts;
  }
  return breaker_ids_;
}

}  // namespace adze::engine
