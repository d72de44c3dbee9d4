// What one loaded engine is made of, behind the API: model, backend, pages, the step loop, and what conversations
// share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "backend/backend.hpp"
#include "cache/page_pool.hpp"
#include "cache/slot_pool.hpp"
#include "engine/host.hpp"
#include "engine/step_loop.hpp"
#include "ops/plan.hpp"
#include "ops/work.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace adze::engine {

// From load(), or from a test.
struct CoreParts {
  std::shared_ptr<const void> model;  // keeps weights, plan and vocabulary alive
  const ops::Plan* plan = nullptr;    // of `model`
  std::unique_ptr<backend::Prepared> backend;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::optional<Error> template_error;  // why the model's own template cannot be used
  Host host = system_host();
  std::optional<std::int64_t> template_time;
  GenerateOptions defaults;
  ModelInfo info;                 // vocabulary and context are read from it
  bool multiplies_bytes = false;  // quantised weights with int8 activations (backend::Compute::automatic)
  int max_batch_rows = 0;
  std::int32_t pages = 0;  // what the backend was prepared with
  std::int32_t slots = 0;  // the same; 0 for a model without recurrent layers
};

class Core {
 public:
  explicit Core(CoreParts parts);

  const CoreParts& parts() const { return parts_; }
  const ModelInfo& info() const { return parts_.info; }
  cache::PagePool& pool() { return pool_; }
  cache::SlotPool& slots() { return slots_; }

  Sequence new_sequence();
  // A sequence of a conversation may lose its computed positions whenever it is not the one that runs.
  void add_idle(Sequence& sequence) { idle_.push_back(&sequence); }
  void remove_idle(Sequence& sequence) { std::erase(idle_, &sequence); }

  // Makes `sequence` the prompt, computes what it has not, and answers. Errors: those of Conversation::say().
  Result<Generation> generate(Sequence& sequence, std::vector<std::int32_t> prompt, const GenerateOptions& options,
                              const OnText& on_text);
  Result<std::vector<Generation>> generate_together(std::span<const std::vector<std::int32_t>> prompts,
                                                    const GenerateOptions& options);
  ForwardWork forward_work(const ops::ForwardRows& forward) const;
  Status evaluate(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t)>& wanted,
                  const Engine::OnLogits& on_logits);
  Result<std::vector<Engine::LayerDump>> dump_layers(std::span<const std::int32_t> ids);
  Result<std::vector<Engine::InputSquares>> measure_inputs(std::span<const std::vector<std::int32_t>> windows,
                                                           const std::function<bool(std::size_t)>& go_on);

 private:
  Result<Request> make_request(const GenerateOptions& options, std::uint64_t seed);
  Result<std::vector<std::int32_t>> dry_breakers(const std::vector<std::string>& texts);
  Status check_ids(std::span<const std::int32_t> ids) const;
  Status check_prompt(std::span<const std::int32_t> ids, std::int64_t max_tokens) const;
  // Room for all the prompts and their answers, side by side.
  Status make_room_together(std::span<const std::vector<std::int32_t>> prompts, std::int64_t max_tokens);
  // Takes pages and slots from idle sequences, the longest unused first, until `sequence` can grow to `length`.
  void make_room(const Sequence& sequence, std::int64_t length);

  CoreParts parts_;
  cache::PagePool pool_;
  cache::SlotPool slots_;
  StepLoop loop_;
  std::vector<Sequence*> idle_;             // the longest unused first
  std::vector<std::string> breaker_texts_;  // what breaker_ids_ was made from
  std::vector<std::int32_t> breaker_ids_;
};

}  // namespace adze::engine
