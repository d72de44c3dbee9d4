#include "engine/core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "engine/input_recorder.hpp"
#include "engine/layer_dump.hpp"
#include "engine/options.hpp"

namespace adze::engine {
namespace {

// evaluate() wants up to every row's logits: batches are cut so that they stay below this.
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

void take_answer(const Decoding& decoding, Generation& result) {
  result.ids = decoding.ids();
  result.text = decoding.text();
  result.finish = decoding.finish();
  result.stop_match = decoding.stop_match();
  result.logits_hash = decoding.logits_hash();
}

}  // namespace

Core::Core(CoreParts parts)
    : parts_(std::move(parts)),
      pool_(parts_.pages),
      slots_(parts_.slots),
      loop_(*parts_.backend, parts_.max_batch_rows, parts_.info.vocabulary, parts_.info.context) {}

Sequence Core::new_sequence() {
  return {.ids = {}, .kv = cache::PageTable(pool_, backend::kPageTokens), .state = cache::StateSlot(slots_)};
}

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

Status Core::make_room_together(std::span<const std::vector<std::int32_t>> prompts, std::int64_t max_tokens) {
  std::int64_t pages = 0;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    const std::int64_t room = info().context - std::ssize(prompt);
    const std::int64_t length = std::ssize(prompt) + std::min(max_tokens, room);
    pages += backend::pages_for(length);
  }
  if (pages > pool_.capacity()) {
    return fail(ErrorCode::context_full,
                fmt::format("{} texts with their answers take {} positions side by side, but the context holds {}",
                            prompts.size(), pages * backend::kPageTokens, info().context),
                "shorten them or their answers, or load the model with a larger context");
  }
  const std::int32_t slots = slots_.capacity() == 0 ? 0 : static_cast<std::int32_t>(prompts.size());
  if (slots > slots_.capacity()) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("{} texts side by side need {} recurrent states, but the model was loaded with {}", slots,
                            slots, slots_.capacity()),
                "load the model for more sequences");
  }
  for (Sequence* idle : idle_) {
    if (pool_.available() >= pages && slots_.available() >= slots) break;
    idle->forget();
  }
  return {};
}

void Core::make_room(const Sequence& sequence, std::int64_t length) {
  const std::int64_t missing = length - sequence.kv.room();
  const std::int64_t pages = backend::pages_for(std::max<std::int64_t>(missing, 0));
  const std::int32_t slots = sequence.state.needed() && !sequence.state.held() ? 1 : 0;
  for (Sequence* other : idle_) {
    if (pool_.available() >= pages && slots_.available() >= slots) return;
    if (other != &sequence) other->forget();
  }
}

Result<Generation> Core::generate(Sequence& sequence, std::vector<std::int32_t> prompt, const GenerateOptions& options,
                                  const OnText& on_text) {
  const double start = parts_.host.seconds();
  const std::uint64_t seed = options.sampling.seed ? *options.sampling.seed : parts_.host.seed();
  ADZE_TRY(Request request, make_request(options, seed));
  ADZE_TRY_STATUS(check_prompt(prompt, request.max_tokens));
  const std::int64_t prompt_tokens = std::ssize(prompt);
  Generation result;
  result.seed = seed;
  result.statistics.reused_tokens = sequence.retarget(std::move(prompt));
  result.statistics.prompt_tokens = prompt_tokens - result.statistics.reused_tokens;

  Decoding decoding(sequence, std::move(request), parts_.tokenizer, info().context);
  Decoding* const running[] = {&decoding};
  while (!decoding.finished()) {
    if (options.cancelled && options.cancelled()) {
      decoding.cancel();
      break;
    }
    make_room(sequence, std::min(sequence.length(), sequence.kv.length() + parts_.max_batch_rows));
    loop_.step(running);
    if (decoding.sampled_tokens() == 1) result.statistics.prompt_seconds = parts_.host.seconds() - start;
    const std::string_view piece = decoding.take_text();
    if (!piece.empty() && on_text && !on_text(piece)) decoding.cancel();
  }
  if (decoding.error()) return tl::unexpected(*decoding.error());
  const double total = parts_.host.seconds() - start;
  Statistics& statistics = result.statistics;
  if (decoding.sampled_tokens() == 0) {  // cancelled before the first token, or none was asked for
    statistics.prompt_tokens = std::max<std::int64_t>(sequence.kv.length() - statistics.reused_tokens, 0);
    statistics.prompt_seconds = total;
  }
  statistics.first_token_seconds = statistics.prompt_seconds;
  statistics.generate_seconds = total - statistics.prompt_seconds;
  statistics.generated_tokens = decoding.sampled_tokens();
  take_answer(decoding, result);
  return result;
}

Result<std::vector<Generation>> Core::generate_together(std::span<const std::vector<std::int32_t>> prompts,
                                                        const GenerateOptions& options) {
  const double start = parts_.host.seconds();
  ADZE_TRY(const std::int64_t max_tokens, check_max_tokens(options.max_tokens));
  for (const std::vector<std::int32_t>& prompt : prompts) ADZE_TRY_STATUS(check_prompt(prompt, max_tokens));
  ADZE_TRY_STATUS(make_room_together(prompts, max_tokens));
  std::vector<Generation> results(prompts.size());
  std::deque<Sequence> sequences;  // decodings point into them
  std::deque<Decoding> decodings;
  std::vector<Decoding*> running;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    results[i].seed = options.sampling.seed ? *options.sampling.seed : parts_.host.seed();
    ADZE_TRY(Request request, make_request(options, results[i].seed));
    Sequence& sequence = sequences.emplace_back(new_sequence());
    sequence.ids = prompts[i];
    running.push_back(&decodings.emplace_back(sequence, std::move(request), parts_.tokenizer, info().context));
  }
  const auto step_while = [&](auto&& goes_on) {
    for (;;) {
      std::vector<Decoding*> now;
      std::ranges::copy_if(running, std::back_inserter(now), goes_on);
      if (now.empty()) return;
      if (options.cancelled && options.cancelled()) std::ranges::for_each(now, &Decoding::cancel);
      loop_.step(now);
    }
  };
  step_while([](const Decoding* d) { return !d->finished() && d->sampled_tokens() == 0; });
  const double first_tokens = parts_.host.seconds();
  step_while([](const Decoding* d) { return !d->finished(); });
  const double end = parts_.host.seconds();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (decodings[i].error()) return tl::unexpected(*decodings[i].error());
    results[i].statistics = {.prompt_tokens = std::ssize(prompts[i]),
                             .generated_tokens = decodings[i].sampled_tokens(),
                             .prompt_seconds = first_tokens - start,
                             .generate_seconds = end - first_tokens,
                             .first_token_seconds = first_tokens - start};
    take_answer(decodings[i], results[i]);
  }
  return results;
}

ForwardWork Core::forward_work(const ops::ForwardRows& forward) const {
  ADZE_CHECK(parts_.plan != nullptr, "an engine without a plan");
  const double page = static_cast<double>(parts_.backend->memory().bytes_per_page);
  ops::Work work = ops::work_of(*parts_.plan, forward, page / backend::kPageTokens);
  if (!parts_.multiplies_bytes) work = ops::in_floats(work);
  return {.weight_bytes = work.weight_bytes,
          .cache_bytes = work.cache_bytes,
          .byte_products = work.byte_products,
          .float_products = work.float_products};
}

Status Core::evaluate(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t)>& wanted,
                      const Engine::OnLogits& on_logits) {
  ADZE_TRY_STATUS(check_ids(ids));
  if (std::ssize(ids) > info().context) {
    return fail(ErrorCode::context_full,
                fmt::format("{} tokens were given, but the context holds {}", ids.size(), info().context),
                "give fewer, or load the model with a larger context");
  }
  const std::int64_t row_bytes = static_cast<std::int64_t>(info().vocabulary) * 4;
  const std::int64_t most_wanted = std::max<std::int64_t>(limits::kMaxLogitBytesAtOnce / row_bytes, 1);
  Sequence sequence = new_sequence();
  sequence.ids.assign(ids.begin(), ids.end());
  Stepper& stepper = loop_.stepper();
  while (sequence.waiting() > 0) {
    // As many rows as a batch holds, or up to the last wanted one whose logits still fit.
    int rows = 0;
    std::int64_t wanted_rows = 0;
    while (rows < std::min<std::int64_t>(parts_.max_batch_rows, sequence.waiting())) {
      wanted_rows += wanted(sequence.kv.length() + rows) ? 1 : 0;
      if (wanted_rows > most_wanted) break;
      ++rows;
    }
    make_room(sequence, sequence.kv.length() + rows);
    stepper.begin();
    ADZE_TRY([[maybe_unused]] const int added, stepper.add(sequence, rows, wanted));
    ADZE_TRY_STATUS(stepper.run());
    for (int i = 0; i < stepper.wanted_count(); ++i) on_logits(stepper.wanted_position(i), stepper.logits(i));
  }
  return {};
}

Result<std::vector<Engine::LayerDump>> Core::dump_layers(std::span<const std::int32_t> ids) {
  ADZE_CHECK(parts_.plan != nullptr, "an engine without a plan");
  LayerRecorder recorder(*parts_.plan);
  const Observing observing(*parts_.backend, recorder);
  ADZE_TRY_STATUS(evaluate(ids, [](std::int64_t) { return true; }, [](std::int64_t, std::span<const float>) {}));
  return recorder.take();
}

Result<std::vector<Engine::InputSquares>> Core::measure_inputs(std::span<const std::vector<std::int32_t>> windows,
                                                               const std::function<bool(std::size_t)>& go_on) {
  ADZE_CHECK(parts_.plan != nullptr, "an engine without a plan");
  InputRecorder recorder(*parts_.plan);
  const Observing observing(*parts_.backend, recorder);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    // Nobody needs logits: an observed batch computes all of its rows in all layers.
    ADZE_TRY_STATUS(
        evaluate(windows[i], [](std::int64_t) { return false; }, [](std::int64_t, std::span<const float>) {}));
    ADZE_TRY_STATUS(recorder.check());
    if (go_on && !go_on(i + 1)) break;
  }
  return recorder.take();
}

Result<Request> Core::make_request(const GenerateOptions& options, std::uint64_t seed) {
  sample::SamplerParameters parameters = to_parameters(options.sampling);
  parameters.seed = seed;
  const std::span<const std::int32_t> ends = parts_.tokenizer->end_of_generation();
  if (options.ignore_eos) parameters.banned.assign(ends.begin(), ends.end());
  if (options.sampling.dry_multiplier > 0) {
    ADZE_TRY(parameters.dry_breakers, dry_breakers(options.sampling.dry_sequence_breakers));
  }
  ADZE_TRY(const std::int64_t max_tokens, check_max_tokens(options.max_tokens));
  ADZE_TRY(std::vector<std::int32_t> stop_ids, check_stop_ids(options.stop_ids, info().vocabulary));
  if (!options.ignore_eos) stop_ids.insert(stop_ids.end(), ends.begin(), ends.end());
  std::sort(stop_ids.begin(), stop_ids.end());
  ADZE_TRY(StopMatcher stops, StopMatcher::create(options.stop));
  ADZE_TRY(sample::Sampler sampler, sample::Sampler::create(std::move(parameters), info().vocabulary));
  return Request{.sampler = std::move(sampler),
                 .stops = std::move(stops),
                 .stop_ids = std::move(stop_ids),
                 .max_tokens = max_tokens,
                 .hash_logits = options.hash_logits};
}

Result<std::vector<std::int32_t>> Core::dry_breakers(const std::vector<std::string>& texts) {
  if (texts != breaker_texts_) {
    ADZE_TRY(breaker_ids_, find_breakers(*parts_.tokenizer, texts));
    breaker_texts_ = texts;
  }
  return breaker_ids_;
}

}  // namespace adze::engine
