// Drafts from the text itself, without a model: what came before comes again. Two sources, per request:
//
// * tables of contexts of 2, 3 and 4 tokens (context_table.hpp): what followed them how often, and what drafts of it
// came
//   to. The longest context that is sure enough gives the next token, and so on from there.
// * an earlier place of the whole text's end (span_finder.hpp), copied word for word. Where the model then said
// something
//   else (an edited copy), the place behind is tried again at once.
//
// How long a draft gets, and whether there is one, follows from how often evidence of its kind was right in this text
// (evidence.hpp): so a drafter that has little to go by says nothing, and the gate stays open for when it has.
//
// Nothing is kept but tokens: per request 64 bytes for each of at most 3 * ContextTable::kMostContexts contexts (768
// KiB), and 4 to 8 bytes per token of text. Taking in 100,000 tokens costs 5 ms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "speculate/drafter.hpp"

namespace adze::speculate {

class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(DraftRules rules = {});
  ~NgramDrafter() override;

  void propose(std::span<DraftJob> jobs) override;
  void verified(std::uint64_t request, std::span<const std::int32_t> draft, int accepted) override;
  void forget(std::uint64_t request) override;

  std::size_t requests() const { return texts_.size(); }
  std::size_t memory_bytes() const;  // over all requests, near enough

 private:
  class Text;  // what is known of one request's

  DraftRules rules_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Text>> texts_;
};

}  // namespace adze::speculate
