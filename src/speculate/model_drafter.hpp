// Drafts by a smaller model of the same vocabulary, with a cache of its own. It samples as the request itself does,
// with the same noise of (seed, position), the same history and penalties: where the two models agree, so do their
// tokens, at any temperature; and a model that drafts for itself is always right.
//
// One pass per drafted token serves all jobs. A request's text is taken in when it is first asked for, and after that
// only what is new of it: rows that were drafted and turned out to be the text are kept. A recurrent model's state
// cannot go back, so it drafts on a copy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "base/hash.hpp"
#include "cache/kv_cache.hpp"
#include "speculate/drafter.hpp"

namespace adze::speculate {

struct ModelDrafterOptions {
  cache::CacheOptions cache{};  // as the model was prepared; two slots for each request that drafts at once
  Digest root{};                // of everything that decides a bit of the model's KV
  int vocabulary = 0;           // of the requests' samplers; the model may have fewer or more logits behind the tokens
  std::int64_t context = 0;     // tokens of the longest text; beyond it nothing is drafted
  int max_rows = 256;           // of a pass, as the model was prepared
  // New tokens that one propose() takes in, over all requests. What is longer (a prompt) takes several calls, so that
  // other requests' steps do not wait for it; it gets its first draft in the last of them.
  int catch_up_rows = 1024;
};

struct ModelDrafterStatistics {
  std::int64_t passes = 0, rows = 0;
  std::int64_t failures = 0;  // jobs without a draft since a pass failed or pages ran out
};

class ModelDrafter final : public Drafter {
 public:
  // The model outlives the drafter, which is the only one to run it.
  ModelDrafter(backend::Prepared& model, const ModelDrafterOptions& options);
  ~ModelDrafter() override;

  // A job gets no draft, or a short one, when there is no room for it or a pass fails.
  void propose(std::span<DraftJob> jobs) override;
  void verified(std::uint64_t request, std::span<const std::int32_t> draft, int accepted) override;
  // What is known of its text stays for others that begin alike.
  void forget(std::uint64_t request) override;

  std::size_t requests() const { return texts_.size(); }
  const cache::KvCache& cache() const { return cache_; }
  const ModelDrafterStatistics& statistics() const { return statistics_; }

 private:
  // The cache's view of the model.
  class Copies final : public cache::Device {
   public:
    explicit Copies(backend::Prepared& model) : model_(&model) {}
    void copy_page(cache::Group group, std::int32_t from, std::int32_t to) override;
    void copy_state(std::int32_t from, std::int32_t to) override;

   private:
    backend::Prepared* model_;
  };

  struct Text {
    explicit Text(cache::KvSequence sequence) : kv(std::move(sequence)) {}
    std::vector<std::int32_t> ids;          // the request's text when it last asked, and the draft while one is made
    cache::KvSequence kv;                   // of the text
    std::vector<std::int32_t> draft;        // the last one
    std::int64_t room_rows = 0;             // of the draft, computed behind kv in its room: they may be text by now
    std::optional<cache::KvSequence> fork;  // of a recurrent model, while a draft is made
  };
  struct Work {
    DraftJob* job = nullptr;
    Text* text = nullptr;
    bool grows = false;  // its last token's logits have been there, and more are wanted
  };

  bool recurrent() const { return options_.cache.slots > 0; }
  Text& text_of(const DraftJob& job);
  void take_in(Text& text, std::span<const std::int32_t> now);
  void catch_up();
  int next_rows(const Work& work, int left) const;
  void lengthen();
  bool add_next_row(Work& work);
  void draw(Work& work, int wanted);
  // Room for positions below `length`, if need be at the cost of requests that have no job now.
  bool reserve(cache::KvSequence& sequence, std::int64_t length);
  void hand_over_idle();
  void hand_over(Text& text);
  void begin_pass();
  void add_rows(const cache::KvSequence& sequence, std::int64_t first, std::span<const std::int32_t> ids, bool wanted);
  bool run_pass();

  backend::Prepared* model_;
  ModelDrafterOptions options_;
  Copies copies_;
  cache::KvCache cache_;
  sample::Scratch scratch_;
  std::map<std::uint64_t, std::unique_ptr<Text>> texts_;  // hold sequences of cache_
  ModelDrafterStatistics statistics_;

  // Of one propose() and of the pass that is being put together.
  std::vector<Work> works_;
  std::vector<Work*> members_;
  std::vector<backend::Row> rows_;
  std::vector<backend::SequencePages> sequences_;
  std::vector<float> padded_;  // a row of logits in the requests' vocabulary
};

}  // namespace adze::speculate
