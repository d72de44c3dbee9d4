// Cuts text into the pieces inside which tokens are merged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/pattern.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

// The stages behind a name of tokenizer.ggml.pre, and what else the name implies.
struct NamedPreTokenizer {
  std::vector<SplitStage> stages = {};
  bool ignore_merges = false;
};
// Errors: unsupported_feature, listing the names that are known.
Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name);
// The way back: the name whose stages these are, of several the one that says the same of merges; empty where none has
// them.
std::string_view name_of_pre_tokenizer(const std::vector<SplitStage>& stages, bool ignore_merges);

// A stage that makes every character of category N a piece of its own.
SplitStage single_digits_stage();
// GPT-2's pattern, which several others build on.
extern const std::string_view kGpt2Pattern;

// Immutable; any number of threads.
class PreTokenizer {
 public:
  // No stages: the text is one piece. Errors: those of Pattern::compile, limit_exceeded (kPatternMaxStages).
  static Result<PreTokenizer> create(const std::vector<SplitStage>& stages);

  // Appends the pieces of `text` (valid UTF-8) to `pieces`; none is empty and together, unless a stage drops matches,
  // they are the text. Errors: limit_exceeded when the budget runs out.
  Status split(std::string_view text, Pattern::Budget& budget, std::vector<std::string_view>& pieces) const;

 private:
  struct Stage {
    Pattern pattern;
    SplitStage::Cut cut;
    bool invert;
  };
  static Status split_piece(const Stage& stage, std::string_view piece, Pattern::Budget& budget,
                            Pattern::Scratch& scratch, std::vector<std::string_view>& pieces);
  std::vector<Stage> stages_;
};

}  // namespace adze::text
