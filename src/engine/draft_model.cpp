#include "engine/draft_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/memory.hpp"
#include "engine/policy.hpp"
#include "model/vocabulary.hpp"
#include "speculate/model_drafter.hpp"
#include "speculate/ngram_drafter.hpp"

namespace adze::engine {
namespace {

// The drafter with what it stands on.
class DraftModel final : public speculate::Drafter {
 public:
  DraftModel(std::shared_ptr<const model::Model> model, std::unique_ptr<backend::Prepared> backend,
             const speculate::ModelDrafterOptions& options)
      : model_(std::move(model)), backend_(std::move(backend)), drafter_(*backend_, options) {}

  void propose(std::span<speculate::DraftJob> jobs) override { drafter_.propose(jobs); }
  void verified(std::uint64_t request, std::span<const std::int32_t> draft, int accepted) override {
    drafter_.verified(request, draft, accepted);
  }
  void forget(std::uint64_t request) override { drafter_.forget(request); }

 private:
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<backend::Prepared> backend_;
  speculate::ModelDrafter drafter_;
};

// A drafted id must mean the same text to both.
Status check_vocabulary(const text::Tokenizer& draft, const DraftTarget& target, const std::filesystem::path& path) {
  const text::Tokenizer& own = target.tokenizer;
  std::string difference;
  if (draft.size() != own.size()) {
    difference = fmt::format("{} tokens, not {}", draft.size(), own.size());
  } else {
    for (std::int32_t id = 0; id < own.size() && difference.empty(); ++id) {
      if (draft.token_text(id) != own.token_text(id)) {
        difference = fmt::format("token {} is '{}', not '{}'", id, draft.token_text(id), own.token_text(id));
      }
    }
  }
  if (difference.empty()) return {};
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("'{}' cannot draft for this model: its vocabulary is another one ({})", path.string(), difference),
      "take a smaller model of the same family, or --spec ngram");
}

}  // namespace

Result<LoadedDrafter> load_drafter(const LoadOptions& options, const DraftTarget& target,
                                   backend::PrepareOptions prepare) {
  const speculate::DraftRules rules =
      target.recurrent ? speculate::DraftRules::recurrent() : speculate::DraftRules::attention();
  switch (options.speculation) {
    case Speculation::off: return LoadedDrafter{.drafter = nullptr, .description = "drafts: off"};
    case Speculation::ngram:
      return LoadedDrafter{.drafter = std::make_unique<speculate::NgramDrafter>(rules),
                           .description = "drafts: from the text itself"};
    case Speculation::draft: break;
  }
  ADZE_TRY(model::Model loaded, model::Model::load(options.draft_model, {.context = target.context}));
  const auto draft = std::make_shared<model::Model>(std::move(loaded));
  ADZE_TRY(const auto tokenizer, model::load_tokenizer(draft));
  ADZE_TRY_STATUS(check_vocabulary(*tokenizer, target, options.draft_model));
  draft->weights().release_headers();
  const ops::Plan& plan = draft->plan();
  set_pages(plan, plan.context_length, target.sequences, prepare);
  prepare.max_slots = 2 * std::max(target.sequences, policy::kStateSequences);
  const backend::MemoryUse use = backend::estimate_memory(plan, prepare);
  ADZE_TRY_STATUS(
      fit_context(memory_need(use, prepare), plan.context_length, false, available_memory()).map([](std::int64_t) {}));
  ADZE_TRY(std::unique_ptr<backend::Prepared> backend, backend::prepare(plan, prepare));
  const speculate::ModelDrafterOptions how{
      .cache = {.page_tokens = backend::kPageTokens,
                .full_pages = static_cast<std::int32_t>(use.bytes_per_page > 0 ? prepare.max_pages : 0),
                .sliding_pages = static_cast<std::int32_t>(prepare.max_sliding_pages),
                .slots = plan.state_layers.empty() ? 0 : prepare.max_slots,
                .window = backend::sliding_window(plan)},
      .vocabulary = target.vocabulary,
      .context = plan.context_length,
      .max_rows = prepare.max_batch_rows};
  const double share =
      static_cast<double>(use.weight_bytes) / static_cast<double>(std::max<std::uint64_t>(target.weight_bytes, 1));
  return LoadedDrafter{
      .drafter = std::make_unique<DraftModel>(draft, std::move(backend), how),
      .draft_cost = share,
      .description = fmt::format("drafts: by {}, a token at {:.0f} % of a pass", draft->name(), 100 * share)};
}

}  // namespace adze::engine
