#include "sample/token_mask.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "sample/sampler.hpp"

namespace adze::sample {
namespace {

std::vector<std::uint32_t> mask_of(const std::set<std::int32_t>& ids, int vocabulary) {
  std::vector<std::uint32_t> words(mask_words(vocabulary), 0);
  for (const std::int32_t id : ids) words[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
  return words;
}

std::vector<float> rising(int vocabulary) {
  std::vector<float> row(static_cast<std::size_t>(vocabulary));
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i) * 0.01f;
  return row;
}

SamplerParameters greedy() {
  SamplerParameters p;
  p.temperature = 0;
  return p;
}

TEST(TokenMask, OnlyWhatItAllowsIsDrawn) {
  for (const int vocabulary : {1, 31, 32, 33, 64, 95, 1000}) {
    const std::vector<float> row = rising(vocabulary);
    Scratch scratch(vocabulary, 8);
    const auto best = Sampler::create(greedy(), vocabulary).value();
    const auto any = Sampler::create({}, vocabulary).value();
    for (std::int32_t id = 0; id < vocabulary; id += 7) {
      auto words = mask_of({id}, vocabulary);
      words.back() |= vocabulary % 32 == 0 ? 0u : ~0u << (vocabulary % 32);  // bits that mean nothing
      const SampleOptions options{.mask = {words}};
      EXPECT_EQ(best.sample(row, {}, 3, scratch, options).value(), id);
      EXPECT_EQ(any.sample(row, {}, 3, scratch, options).value(), id);
    }
    const std::vector<std::uint32_t> all(mask_words(vocabulary), ~0u);
    for (int position = 0; position < 50; ++position) {
      EXPECT_EQ(any.sample(row, {}, position, scratch, {.mask = {all}}).value(),
                any.sample(row, {}, position, scratch).value());
    }
  }
}

TEST(TokenMask, AllowedAndBannedMeetIt) {
  constexpr int kVocabulary = 100;
  const std::vector<float> row = rising(kVocabulary);
  Scratch scratch(kVocabulary, 8);
  SamplerParameters p = greedy();
  p.allowed = {5, 40, 80, 81};
  EXPECT_EQ(Sampler::create(p, kVocabulary)->sample(row, {}, 0, scratch).value(), 81);
  p.banned = {81, 99};
  EXPECT_EQ(Sampler::create(p, kVocabulary)->sample(row, {}, 0, scratch).value(), 80);
  const auto words = mask_of({5, 40, 81, 99}, kVocabulary);
  EXPECT_EQ(Sampler::create(p, kVocabulary)->sample(row, {}, 0, scratch, {.mask = {words}}).value(), 40);
  p.temperature = 1;
  const auto sampler = Sampler::create(p, kVocabulary).value();
  std::set<std::int32_t> seen;
  for (int i = 0; i < 500; ++i) seen.insert(sampler.sample(row, {}, i, scratch, {.mask = {words}}).value());
  EXPECT_EQ(seen, (std::set<std::int32_t>{5, 40}));
  // A bias does not bring back what is masked out.
  p = greedy();
  p.logit_bias = {{7, 100.0f}};
  EXPECT_EQ(Sampler::create(p, kVocabulary)->sample(row, {}, 0, scratch, {.mask = {words}}).value(), 99);
}

TEST(TokenMask, NothingLeftSaysWhoTookIt) {
  constexpr int kVocabulary = 40;
  const std::vector<float> row = rising(kVocabulary);
  Scratch scratch(kVocabulary, 8);
  const auto why = [&](const SamplerParameters& p, const std::set<std::int32_t>* ids) {
    const auto words = ids == nullptr ? std::vector<std::uint32_t>{} : mask_of(*ids, kVocabulary);
    const auto token = Sampler::create(p, kVocabulary)->sample(row, {}, 12, scratch, {.mask = {words}});
    EXPECT_FALSE(token);
    if (token) return std::string();
    EXPECT_EQ(token.error().code, ErrorCode::invalid_argument);
    EXPECT_FALSE(token.error().hint.empty());
    return token.error().message;
  };
  SamplerParameters p;
  const std::set<std::int32_t> none;
  const std::set<std::int32_t> three{3};
  EXPECT_EQ(why(p, &none), "the grammar allows no token of the vocabulary at position 12");
  p.banned = {3};
  EXPECT_EQ(why(p, &three), "the grammar, the allowed and the banned tokens together leave none for position 12");
  p.allowed = {3};
  EXPECT_EQ(why(p, nullptr), "every one of the allowed tokens is banned as well");
}

}  // namespace
}  // namespace adze::sample
