#include "adze/adze.hpp"

#include <algorithm>
#include <utility>

#include "engine/api_impl.hpp"
#include "engine/options.hpp"
#include "engine/plan_report.hpp"

namespace adze {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "";
}

std::string describe_sampling(const SamplingOptions& options) {
  sample::SamplerParameters parameters = engine::to_parameters(options);
  parameters.seed = options.seed.value_or(0);
  return sample::describe_chain(parameters, options.seed.has_value());
}

Engine EngineImpl::assemble(engine::CoreParts parts) {
  auto impl = std::make_unique<EngineImpl>();
  impl->core = std::make_shared<engine::Core>(std::move(parts));
  return Engine(std::move(impl));
}

Engine::Engine(std::unique_ptr<EngineImpl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::load(const std::filesystem::path& model, const LoadOptions& options) {
  ADZE_TRY(engine::CoreParts parts, engine::load_parts(model, options));
  return EngineImpl::assemble(std::move(parts));
}

const ModelInfo& Engine::info() const { return impl_->core->info(); }

GenerateOptions Engine::default_options() const { return impl_->core->parts().defaults; }

std::string Engine::plan_text() const {
  const engine::CoreParts& parts = impl_->core->parts();
  return engine::plan_text(parts.info, *parts.plan, parts.backend->schedule(), parts.backend->memory());
}

std::string Engine::plan_json() const {
  const engine::CoreParts& parts = impl_->core->parts();
  return engine::plan_json(parts.info, *parts.plan, parts.backend->schedule(), parts.backend->memory());
}

PackInfo Engine::packs() const {
  const backend::PackReport report = impl_->core->parts().backend->packs();
  PackInfo info{.found = report.found,
                .done_bytes = report.done_bytes,
                .total_bytes = report.total_bytes,
                .path = report.path,
                .error = report.error};
  switch (report.state) {
    case backend::PackState::off: info.state = PackState::off; break;
    case backend::PackState::packing: info.state = PackState::packing; break;
    case backend::PackState::ready: info.state = PackState::ready; break;
    case backend::PackState::failed: info.state = PackState::failed; break;
  }
  return info;
}

void Engine::finish_packs(const std::function<bool(std::uint64_t, std::uint64_t)>& go_on) {
  impl_->core->parts().backend->wait_for_packs(go_on);
}

Result<std::vector<std::int32_t>> Engine::tokenize(std::string_view text, bool add_bos, bool parse_special) const {
  return impl_->core->parts().tokenizer->encode(text, {.parse_special = parse_special, .add_bos = add_bos});
}

std::string Engine::detokenize(std::span<const std::int32_t> ids, bool show_special) const {
  return impl_->core->parts().tokenizer->decode(ids, {.show_special = show_special});
}

bool Engine::adds_bos() const { return impl_->core->parts().tokenizer->adds_bos(); }

// --- answers ---------------------------------------------------------------------------------------------------------

bool AnswerImpl::next(engine::RequestEvent& event) {
  if (last.end || !core->desk().next(*ticket, event)) return false;
  if (event.end) last = event;
  return true;
}

Answer::Answer(std::unique_ptr<AnswerImpl> impl) : impl_(std::move(impl)) {}
Answer::Answer(Answer&&) noexcept = default;
Answer& Answer::operator=(Answer&& other) noexcept {
  if (this != &other) {
    if (impl_) impl_->core->desk().drop(*impl_->ticket);
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Answer::~Answer() {
  if (impl_) impl_->core->desk().drop(*impl_->ticket);
}

std::uint64_t Answer::id() const { return impl_->ticket->id; }
void Answer::cancel() { impl_->core->desk().cancel(*impl_->ticket); }

std::optional<AnswerPiece> Answer::next() {
  engine::RequestEvent event;
  while (impl_->next(event)) {
    if (event.text.empty() && event.ids.empty()) continue;
    return AnswerPiece{.text = std::move(event.text),
                       .ids = std::move(event.ids),
                       .logprobs = engine::public_logprobs(event.log_probabilities)};
  }
  return std::nullopt;
}

Result<Generation> Answer::wait() {
  engine::RequestEvent event;
  while (impl_->next(event)) {
  }
  return impl_->core->finish(*impl_->ticket, impl_->last);
}

Result<std::vector<Answer>> EngineImpl::submit(const std::shared_ptr<engine::Core>& core,
                                               std::span<const Request> requests, int copies) {
  ADZE_TRY(const auto tickets, core->submit(requests, copies));
  std::vector<Answer> answers;
  for (const std::shared_ptr<engine::Ticket>& ticket : tickets) {
    answers.push_back(Answer(std::make_unique<AnswerImpl>(AnswerImpl{.core = core, .ticket = ticket})));
  }
  return answers;
}

Result<Answer> Engine::submit(Request request) {
  ADZE_TRY(std::vector<Answer> answers, EngineImpl::submit(impl_->core, {&request, 1}, 1));
  return std::move(answers.front());
}

Result<std::vector<Answer>> Engine::submit_copies(const Request& request, int copies) {
  return EngineImpl::submit(impl_->core, {&request, 1}, copies);
}

EngineStatistics Engine::statistics() const { return impl_->core->statistics(); }

Result<Generation> engine::generate(const std::shared_ptr<Core>& core, std::vector<std::int32_t> prompt,
                                    const GenerateOptions& options, const OnText& on_text) {
  Request request;
  request.prompt = std::move(prompt);
  request.options = options;
  ADZE_TRY(std::vector<Answer> answers, EngineImpl::submit(core, {&request, 1}, 1));
  Answer& answer = answers.front();
  bool wanted = static_cast<bool>(on_text);
  while (const auto piece = answer.next()) {
    if (!wanted || piece->text.empty() || on_text(piece->text)) continue;
    wanted = false;
    answer.cancel();
  }
  return answer.wait();
}

Result<Generation> Engine::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                    const OnText& on_text) {
  return engine::generate(impl_->core, {prompt.begin(), prompt.end()}, options, on_text);
}

Result<std::vector<Generation>> Engine::generate_together(std::span<const std::vector<std::int32_t>> prompts,
                                                          const GenerateOptions& options) {
  std::vector<Request> requests(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    requests[i].prompt = prompts[i];
    requests[i].options = options;
  }
  ADZE_TRY(std::vector<Answer> answers, EngineImpl::submit(impl_->core, requests, 1));
  std::vector<Generation> results;
  double first = 0, end = 0;
  for (Answer& answer : answers) {
    ADZE_TRY(results.emplace_back(), answer.wait());
    const Statistics& statistics = results.back().statistics;
    first = std::max(first, statistics.prompt_seconds);
    end = std::max(end, statistics.prompt_seconds + statistics.generate_seconds);
  }
  for (Generation& result : results) {
    result.statistics.prompt_seconds = first;
    result.statistics.generate_seconds = end - first;
  }
  return results;
}

ForwardWork Engine::forward_work(std::int64_t rows, std::int64_t wanted, std::int64_t sequences,
                                 std::int64_t depth) const {
  return impl_->core->forward_work({.rows = rows, .wanted = wanted, .sequences = sequences, .depth = depth});
}

Status Engine::evaluate(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t position)>& wanted,
                        const OnLogits& on_logits) {
  return impl_->core->evaluate(ids, wanted, on_logits);
}

Result<std::vector<Engine::LayerDump>> Engine::dump_layers(std::span<const std::int32_t> ids) {
  return impl_->core->dump_layers(ids);
}

Result<std::vector<Engine::InputSquares>> Engine::measure_inputs(std::span<const std::vector<std::int32_t>> windows,
                                                                 const std::function<bool(std::size_t)>& go_on) {
  return impl_->core->measure_inputs(windows, go_on);
}

}  // namespace adze
