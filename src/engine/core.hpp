// What one loaded engine is made of, behind the API: model, backend, the memory of texts, the request loop and its
// desk.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "backend/backend.hpp"
#include "cache/kv_cache.hpp"
#include "engine/desk.hpp"
#include "engine/host.hpp"
#include "engine/request_loop.hpp"
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
  // What the backend was prepared with; 0 for layers that the model does not have.
  std::int32_t pages = 0, sliding_pages = 0, slots = 0;
  std::int64_t window = 0;                        // of sliding layers
  Digest root{};                                  // everything of model and settings that decides a bit of KV
  int max_running = 0;                            // requests side by side; 0: as many as the policy and the slots allow
  std::unique_ptr<speculate::Drafter> drafter{};  // null: nobody drafts
  speculate::CostTable costs = speculate::CostTable::built_in();
  double draft_cost = 0;  // see speculate::Gate
};

std::vector<TokenLogprobs> public_logprobs(const std::vector<sample::LogProbabilities>& from);

class Core {
 public:
  explicit Core(CoreParts parts);

  const CoreParts& parts() const { return parts_; }
  const ModelInfo& info() const { return parts_.info; }
  Desk& desk() { return desk_; }
  EngineStatistics statistics();

  // Checks the requests and puts them in line together, each as often as `copies` says, with seeds that count up.
  // Errors: those of Engine::submit(), and then none is in line.
  Result<std::vector<std::shared_ptr<Ticket>>> submit(std::span<const adze::Request> requests, int copies);
  // The whole of an answer, once its ticket has ended; `last` is its last event.
  Result<Generation> finish(const Ticket& ticket, const RequestEvent& last) const;

  ForwardWork forward_work(const ops::ForwardRows& forward) const;
  Status evaluate(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t)>& wanted,
                  const Engine::OnLogits& on_logits);
  Result<std::vector<Engine::LayerDump>> dump_layers(std::span<const std::int32_t> ids);
  Result<std::vector<Engine::InputSquares>> measure_inputs(std::span<const std::vector<std::int32_t>> windows,
                                                           const std::function<bool(std::size_t)>& go_on);

 private:
  // The cache's view of the backend.
  class Bytes final : public cache::Device {
   public:
    explicit Bytes(backend::Prepared& backend) : backend_(backend) {}
    void copy_page(cache::Group group, std::int32_t from, std::int32_t to) override;
    void copy_state(std::int32_t from, std::int32_t to) override { backend_.copy_state(from, to); }

   private:
    backend::Prepared& backend_;
  };

  Status add_orders(const adze::Request& request, int copies, std::vector<Desk::Order>& orders);
  Result<AnswerSpec> make_answer(const GenerateOptions& options, std::uint64_t seed);
  Result<std::vector<std::int32_t>> dry_breakers(const std::vector<std::string>& texts);
  Status check_ids(std::span<const std::int32_t> ids) const;
  Status check_prompt(std::span<const std::int32_t> ids, std::int64_t max_tokens) const;
  // Alone at the desk.
  Status evaluate_now(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t)>& wanted,
                      const Engine::OnLogits& on_logits);

  CoreParts parts_;
  Bytes bytes_;
  cache::KvCache cache_;
  RequestLoop loop_;
  Desk desk_;
  std::mutex breakers_mutex_;
  std::vector<std::string> breaker_texts_;  // what breaker_ids_ was made from
  std::vector<std::int32_t> breaker_ids_;
};

}  // namespace adze::engine
