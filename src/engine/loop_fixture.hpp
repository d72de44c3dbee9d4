// A request loop around a scripted model, for tests: submits, steps, and collects what each request's reader would see.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/request_loop.hpp"
#include "engine/scripted_backend.hpp"
#include "engine/test_vocabulary.hpp"

namespace adze::engine {

struct BenchOptions {
  std::int64_t context = 512;
  int chunk = 64;
  std::int32_t pages = 64;  // of full layers
  std::int32_t sliding_pages = 0;
  std::int64_t window = 0;
  std::int32_t slots = 0;
  int max_running = 64;
  std::int64_t checkpoint_tokens = 1024;
  speculate::CostTable costs = speculate::CostTable::built_in();
  speculate::Drafter* drafter = nullptr;
};

struct AskOptions {
  std::int64_t max_tokens = 1000;
  std::vector<std::string> stops{};
  sample::SamplerParameters sampling{.temperature = 0};
};

class LoopBench final : public cache::Device {
 public:
  LoopBench(ScriptedBackend::Model model, std::shared_ptr<const text::Tokenizer> vocabulary, const BenchOptions& o)
      : tokenizer(std::move(vocabulary)),
        backend({.vocabulary = tokenizer->size(),
                 .context = o.context,
                 .max_batch_rows = o.chunk,
                 .pages = o.pages,
                 .sliding_pages = o.sliding_pages,
                 .window = o.window,
                 .slots = o.slots},
                std::move(model)),
        cache({.page_tokens = backend::kPageTokens,
               .full_pages = o.pages,
               .sliding_pages = o.sliding_pages,
               .slots = o.slots,
               .window = o.window,
               .checkpoint_tokens = o.checkpoint_tokens},
              *this),
        loop(backend, cache, tokenizer, o.drafter,
             {.max_rows = o.chunk,
              .max_running = o.slots > 0 ? std::min(o.max_running, o.slots) : o.max_running,
              .vocabulary = tokenizer->size(),
              .context = o.context,
              .rules = o.slots > 0 ? speculate::DraftRules::recurrent() : speculate::DraftRules::attention(),
              .costs = o.costs}) {}

  RequestSpec spec(std::vector<std::int32_t> prompt, AskOptions ask) const {
    std::vector<std::int32_t> ends(tokenizer->end_of_generation().begin(), tokenizer->end_of_generation().end());
    std::ranges::sort(ends);
    AnswerSpec answer{.sampler = sample::Sampler::create(std::move(ask.sampling), tokenizer->size()).value(),
                      .stops = StopMatcher::create(ask.stops).value(),
                      .stop_ids = std::move(ends),
                      .max_tokens = ask.max_tokens,
                      .hash_logits = true};
    return {.id = 0, .prompt = std::move(prompt), .answer = std::move(answer), .root = {}};
  }

  struct Outcome {
    std::vector<std::string> pieces;
    std::vector<std::int32_t> ids;  // of the events, joined
    std::shared_ptr<const Decoding> end;
    RequestCounts counts;
  };

  RequestId submit(RequestSpec given) {
    given.id = ++last_id;
    loop.submit(std::move(given));
    return last_id;
  }
  void step() {
    std::vector<RequestEvent> events;
    loop.step(now, events);
    for (RequestEvent& event : events) {
      Outcome& outcome = outcomes[event.id];
      EXPECT_EQ(outcome.end, nullptr) << "an event after the end of request " << event.id;
      if (!event.text.empty()) outcome.pieces.push_back(std::move(event.text));
      outcome.ids.insert(outcome.ids.end(), event.ids.begin(), event.ids.end());
      if (!event.end) continue;
      outcome.end = event.end;
      outcome.counts = event.counts;
      order.push_back(event.id);
      EXPECT_EQ(outcome.ids, event.end->ids());
    }
  }
  // To the end of all; nothing is held afterwards.
  void run_all() {
    while (!loop.idle()) step();
    for (const cache::Group group : cache::kEachGroup) EXPECT_EQ(cache.in_use(group), 0);
    EXPECT_EQ(cache.slots_in_use(), 0);
  }
  Outcome run(RequestSpec given) {
    const RequestId id = submit(std::move(given));
    run_all();
    return outcomes.at(id);
  }

  void copy_page(cache::Group group, std::int32_t from, std::int32_t to) override {
    backend.copy_page(group == cache::Group::full ? backend::PageGroup::full : backend::PageGroup::sliding, from, to);
  }
  void copy_state(std::int32_t from, std::int32_t to) override { backend.copy_state(from, to); }

  std::shared_ptr<const text::Tokenizer> tokenizer;
  ScriptedBackend backend;
  cache::KvCache cache;
  RequestLoop loop;
  double now = 0;
  RequestId last_id = 0;
  std::map<RequestId, Outcome> outcomes;
  std::vector<RequestId> order;  // in which they ended
};

}  // namespace adze::engine
