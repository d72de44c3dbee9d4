// The smaller model of Speculation::draft: loaded beside the one it drafts for, with a backend and a cache of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "adze/adze.hpp"
#include "backend/backend.hpp"
#include "base/result.hpp"
#include "model/model.hpp"
#include "speculate/drafter.hpp"
#include "text/tokenizer.hpp"

namespace adze::engine {

// Who drafts, and what a drafted token costs (speculate::Gate).
struct LoadedDrafter {
  std::unique_ptr<speculate::Drafter> drafter;  // null: nobody
  double draft_cost = 0;
  std::string description;
};

// Of the model whose answers it drafts.
struct DraftTarget {
  const text::Tokenizer& tokenizer;
  int vocabulary = 0;
  std::int64_t context = 0;
  std::uint64_t weight_bytes = 0;
  bool recurrent = false;
  int sequences = 0;  // with states, side by side
};

// `prepare`: how the draft model is prepared, but for its context and its memory for texts. Errors: those of loading a
// model; invalid_argument for another vocabulary.
Result<LoadedDrafter> load_drafter(const LoadOptions& options, const DraftTarget& target,
                                   backend::PrepareOptions prepare);

}  // namespace adze::engine
