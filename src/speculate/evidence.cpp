#include "speculate/evidence.hpp"

namespace adze::speculate {
namespace {

constexpr float kFade = 0.92F;  // of what is remembered, with each use
constexpr float kPriorTries = 2;
constexpr std::uint8_t kPatience = 12;  // times a kind is passed over until it is heard again

// Before anything is known. Of copies and contexts in edited code, abstracts and prose (replay_test.cpp).
constexpr std::array<float, kKinds> kPriors{0.3F, 0.45F, 0.5F, 0.4F, 0.55F, 0.6F, 0.5F,
                                            0.6F, 0.7F,  0.5F, 0.7F, 0.85F, 0.95F};

}  // namespace

Evidence::Evidence() {
  for (std::size_t i = 0; i < kKinds; ++i) scores_[i] = {.hits = kPriors[i] * kPriorTries, .tries = kPriorTries};
}

double Evidence::trust(Kind kind) const {
  const Score& score = scores_[static_cast<std::size_t>(kind)];
  return static_cast<double>(score.hits / score.tries);
}

void Evidence::used(Kind kind, bool accepted) {
  Score& score = scores_[static_cast<std::size_t>(kind)];
  score.hits = score.hits * kFade + (accepted ? 1.0F : 0.0F);
  score.tries = score.tries * kFade + 1.0F;
  score.passed_over = 0;
}

void Evidence::passed_over(Kind kind) {
  Score& score = scores_[static_cast<std::size_t>(kind)];
  if (score.passed_over < kPatience) ++score.passed_over;
}

bool Evidence::due(Kind kind) const { return scores_[static_cast<std::size_t>(kind)].passed_over >= kPatience; }

}  // namespace adze::speculate
