// Replays texts whose true continuation is known: drafter, gate and cost table as the engine drives them, without a
// model. What a draft comes to is read off the text; the figure is tokens per cost against plain decoding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "sample/random.hpp"
#include "speculate/gate.hpp"
#include "speculate/ngram_drafter.hpp"

namespace adze::speculate {
namespace {

using Tokens = std::vector<std::int32_t>;

// Words with the space before them, numbers and single other characters, each one an id.
Tokens words_of(const std::string& text) {
  static std::map<std::string, std::int32_t> ids;
  Tokens out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    const auto letter = [&](std::size_t at) {
      return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
    };
    if (letter(i) || (text[i] == ' ' && letter(i + 1))) {
      while (letter(end) && end < i + 7) ++end;
    }
    out.push_back(ids.try_emplace(text.substr(i, end - i), static_cast<std::int32_t>(ids.size())).first->second);
    i = end;
  }
  return out;
}

Tokens bytes_of(const std::string& text) {
  Tokens out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

std::string prose() {
  std::ifstream file(std::string(ADZE_TEST_DATA) + "/smollm2/perplexity.txt");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_GT(text.size(), 20'000u);
  return text;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t below(std::uint64_t n) { return sample::mix64(seed_ + ++count_ * sample::kGolden) % n; }

 private:
  std::uint64_t seed_, count_ = 0;
};

// Source code of made-up functions, as people write it: few names, used again and again.
std::string code(int functions, std::uint64_t seed, const std::string& renamed = "total") {
  Random random(seed);
  const std::vector<std::string> names{"count", "items",  "price",  "row",  "column",
                                       "value", "buffer", "offset", renamed};
  const auto name = [&] { return names[random.below(names.size())]; };
  std::string out;
  for (int f = 0; f < functions; ++f) {
    out += fmt::format("def {}_{}({}, {}):\n", name(), name(), name(), name());
    for (std::uint64_t line = 0; line < 4 + random.below(6); ++line) {
      switch (random.below(5)) {
        case 0: out += fmt::format("    {} = {} + {}\n", name(), name(), random.below(100)); break;
        case 1:
          out += fmt::format("    if {} > {}:\n        {} = {}[{}]\n", name(), name(), name(), name(), name());
          break;
        case 2:
          out += fmt::format("    for {} in range(len({})):\n        {} += {}\n", name(), name(), name(), name());
          break;
        case 3: out += fmt::format("    {} = {}.{}({}, {})\n", name(), name(), name(), name(), name()); break;
        default: out += fmt::format("    print(\"{}: \" + str({}))\n", name(), name()); break;
      }
    }
    out += fmt::format("    return {}\n\n", renamed);
  }
  return out;
}

// An abstract: new words, and spans of 8 to 31 tokens out of the text.
Tokens summary(const Tokens& text, std::size_t length, std::uint64_t seed) {
  Random random(seed);
  Tokens out;
  while (out.size() < length) {
    for (std::uint64_t i = 0; i < 5 + random.below(12); ++i)
      out.push_back(static_cast<std::int32_t>(100'000 + random.below(5000)));
    const std::size_t from = random.below(text.size() - 40);
    const std::size_t count = 8 + random.below(24);
    out.insert(out.end(), text.begin() + static_cast<std::ptrdiff_t>(from),
               text.begin() + static_cast<std::ptrdiff_t>(from + count));
  }
  return out;
}

struct Replay {
  double gain = 0;  // tokens per cost, plain decoding is 1
  double tokens_per_step = 0;
  double tokens_per_verify = 0;
  SpeculationStatistics statistics;
  std::vector<std::size_t> long_steps;  // where in the answer a step gave four tokens or more
};

Replay replay(const Tokens& prompt, const Tokens& answer, DraftRules rules = {}, int other_rows = 0) {
  const CostTable costs = CostTable::built_in();
  NgramDrafter drafter(rules);
  Gate gate(rules);
  Tokens text = prompt;
  text.push_back(answer[0]);
  std::size_t said = 1;
  double cost = 0;
  double plain_tokens_cost = 0;  // of as many tokens, those of the others included
  int steps = 0;
  Replay out;
  while (said < answer.size()) {
    const auto context = static_cast<std::int64_t>(text.size()) - 1;
    const auto left = static_cast<int>(std::min<std::size_t>(answer.size() - said, limits::kMaxDraft + 1)) - 1;
    std::vector<DraftJob> jobs(1);
    const int wanted = gate.choose(costs, other_rows, left, context);
    if (wanted > 0) {
      jobs[0].request = 1;
      jobs[0].text = text;
      jobs[0].prompt_length = static_cast<std::int64_t>(prompt.size());
      jobs[0].most = wanted;
      drafter.propose(jobs);
      const int size = static_cast<int>(jobs[0].draft.size());
      EXPECT_LE(size, wanted);
      jobs[0].draft.resize(static_cast<std::size_t>(gate.choose(costs, other_rows, size, context)));
    }
    const Tokens& draft = jobs[0].draft;
    int accepted = 0;
    while (accepted < std::ssize(draft) &&
           draft[static_cast<std::size_t>(accepted)] == answer[said + static_cast<std::size_t>(accepted)])
      ++accepted;
    const int rows = 1 + static_cast<int>(draft.size());
    cost += costs.of(other_rows + rows, context);
    plain_tokens_cost += costs.of(other_rows + 1, context) / (other_rows + 1) * (other_rows + 1 + accepted);
    for (int i = 0; i <= accepted; ++i) text.push_back(answer[said++]);
    if (accepted >= 3) out.long_steps.push_back(said);
    if (draft.empty()) {
      gate.plain(wanted == 0);
    } else {
      gate.verified(static_cast<int>(draft.size()), accepted);
      drafter.verified(1, draft, accepted);
    }
    ++steps;
  }
  out.statistics = gate.statistics();
  out.gain = plain_tokens_cost / cost;
  out.tokens_per_step = static_cast<double>(answer.size() - 1) / steps;
  const auto verifies = static_cast<double>(std::max<std::int64_t>(out.statistics.verify_steps, 1));
  out.tokens_per_verify = 1 + static_cast<double>(out.statistics.accepted) / verifies;
  return out;
}

void say(const std::string& name, const Replay& r) {
  std::cout << fmt::format(
      "{:24} gain {:.2f}, {:.2f} tokens a step, {:.2f} a verify step; {} of {} drafted held, {} closed\n", name, r.gain,
      r.tokens_per_step, r.tokens_per_verify, r.statistics.accepted, r.statistics.drafted, r.statistics.times_closed);
}

TEST(Replay, EditedCode) {
  const Tokens source = words_of(code(12, 3));
  const Replay same = replay(source, source);
  say("copied code", same);
  const Replay renamed = replay(source, words_of(code(12, 3, "amount")));
  say("renamed code", renamed);
  const Replay recurrent = replay(source, words_of(code(12, 3, "amount")), DraftRules::recurrent());
  say("renamed, recurrent", recurrent);
  const Replay fresh = replay(source, words_of(code(12, 4)));
  say("more code", fresh);
  EXPECT_GT(same.gain, 3);
  EXPECT_GT(renamed.gain, 2);
  EXPECT_GT(recurrent.gain, 1.4);
}

TEST(Replay, Summary) {
  const Tokens text = words_of(prose().substr(0, 20'000));
  const Replay r = replay(text, summary(text, 600, 5));
  say("summary", r);
  say("summary, recurrent", replay(text, summary(text, 600, 5), DraftRules::recurrent()));
  EXPECT_GT(r.gain, 1.2);
}

TEST(Replay, Prose) {
  const std::string text = prose();
  const Replay words = replay(words_of(text.substr(0, 2000)), words_of(text.substr(2000, 6000)));
  say("prose", words);
  const Replay bytes = replay(bytes_of(text.substr(0, 2000)), bytes_of(text.substr(2000, 3000)));
  say("prose in bytes", bytes);
  const Replay far = replay(words_of(text.substr(0, 20'000)), words_of(text.substr(20'000, 3000)));
  say("prose, long context", far);
  for (const Replay* r : {&words, &bytes, &far}) EXPECT_GT(r->gain, 0.98);
}

TEST(Replay, NoiseCostsNothing) {
  Random random(7);
  for (const std::uint64_t vocabulary : {50'000u, 50u, 8u}) {
    Tokens prompt(500), answer(800);
    for (Tokens* t : {&prompt, &answer}) {
      for (std::int32_t& id : *t) id = static_cast<std::int32_t>(random.below(vocabulary));
    }
    for (const int others : {0, 7}) {
      const Replay r = replay(prompt, answer, {}, others);
      say(fmt::format("{} random ids, {} others", vocabulary, others), r);
      EXPECT_GT(r.gain, 0.98);
    }
  }
}

TEST(Replay, ALoop) {
  Tokens answer;
  for (int i = 0; i < 600; ++i) answer.push_back(i % 23);
  const Replay r = replay({1, 2, 3}, answer);
  say("loop", r);
  EXPECT_GT(r.gain, 3);
}

// Free text for long, then a copy: the gate was shut, and opens within tens of tokens.
TEST(Replay, ARegimeThatTurnsIsSeen) {
  const std::string text = prose();
  Tokens prompt = words_of(text.substr(0, 8000));
  Tokens answer = words_of(text.substr(8000, 5000));
  const std::size_t turn = answer.size();
  answer.insert(answer.end(), prompt.begin() + 200, prompt.begin() + 500);
  const Replay r = replay(prompt, answer);
  say("prose, then a copy", r);
  const auto first = std::ranges::find_if(r.long_steps, [&](std::size_t at) { return at > turn + 4; });
  ASSERT_NE(first, r.long_steps.end());
  EXPECT_LT(*first - turn, 60u);
}

}  // namespace
}  // namespace adze::speculate
