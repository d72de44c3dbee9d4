// Random requests to random models, for tests of the request loop; and what each would say to nobody else's knowledge:
// straight from the model's function, the sampler and the text, without cache, batch, draft or engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "engine/loop_fixture.hpp"
#include "sample/log_probabilities.hpp"
#include "sample/random.hpp"
#include "text/detokenizer.hpp"
#include "text/unicode.hpp"

namespace adze::engine {

using sample::mix64;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix64(seed + 1)) {}
  std::uint64_t bits() { return mix64(state_ += sample::kGolden); }
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint64_t>(n)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + below(static_cast<int>(values.size())));
  }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  std::uint64_t state_;
};

// Bytes, parts of characters and words: text and stop strings run across the borders of tokens.
inline std::shared_ptr<const text::Tokenizer> random_vocabulary() {
  return test_vocabulary({"ab", "abc", " a", "b a", "\xc3\xa9", "\xf0\x9f", "\x98\x8a", "\n\n"});
}

// What a model says: a function of what it sees of the text. It keeps to `alphabet`; the fewer tokens it looks at, the
// more it repeats itself.
struct RandomModel {
  std::uint64_t seed = 0;
  std::vector<std::int32_t> alphabet, ends;
  float end_bias = 0;
  std::size_t memory = 1;
  bool breaks = false;  // at some positions its logits are not finite

  void operator()(std::span<const std::int32_t> history, std::span<float> logits) const {
    std::uint64_t key = seed;
    for (const std::int32_t id : history.last(std::min(history.size(), memory))) {
      key = mix64(key + static_cast<std::uint64_t>(id) + 1);
    }
    std::ranges::fill(logits, -30.0f);
    const auto noise = [&](std::int32_t id) {
      return static_cast<float>(mix64(key + static_cast<std::uint64_t>(id) * sample::kGolden) >> 40) * 0x1p-21f;
    };
    for (const std::int32_t id : alphabet) logits[static_cast<std::size_t>(id)] = noise(id);
    for (const std::int32_t id : ends) logits[static_cast<std::size_t>(id)] = noise(id) + end_bias;
    if (breaks && key % 61 == 0) logits[static_cast<std::size_t>(alphabet[0])] = std::numeric_limits<float>::infinity();
  }
};

struct Ask {
  std::vector<std::int32_t> prompt;
  AskOptions options;
  int root = 0, priority = 0, top_logprobs = -1, copy_of = -1, mask = 0;
  bool reuse = true, speculate = true, ignores_ends = false;
  int arrives = 0;                             // in this step
  std::optional<int> cancelled{};              // so many steps later
  std::optional<int> start_by{}, finish_by{};  // steps later
};

enum class DraftedBy : std::uint8_t { nobody, ngrams, chance, model };

struct Scenario {
  explicit Scenario(std::uint64_t number, const text::Tokenizer& vocabulary) : seed(number) {
    Random r(seed);
    options.context = r.one_of({130, 192, 257, 400});
    options.chunk = r.one_of({1, 5, 16, 64, 96});
    options.max_running = r.one_of({1, 2, 3, 8, 8});
    options.checkpoint_tokens = r.one_of({64, 128, 1024});
    if (r.chance(50))
      options.costs = speculate::CostTable::from_points({{{1, 1, 1}, {64, r.one_of({1.1, 9.0}), 10}}}, 0);
    choose_memory(r);
    crowded = r.chance(25);
    if (crowded) options.max_running = 8;
    std::vector<std::int32_t> letters(264);
    for (std::size_t i = 0; i < letters.size(); ++i) letters[i] = static_cast<std::int32_t>(i);
    model = {.seed = seed, .alphabet = {}, .ends = {}, .memory = r.one_of<std::size_t>({1, 2, 3, 1000})};
    for (int i = r.one_of({2, 4, 12, 32}); i > 0; --i) {
      model.alphabet.push_back(r.chance(50) ? r.between(256, 263) : r.between('a', 'h'));
    }
    const std::span<const std::int32_t> ends = vocabulary.end_of_generation();
    model.ends.assign(ends.begin(), ends.end());
    model.end_bias = crowded ? -20.0f : r.one_of({-20.0f, -4.0f, -1.0f});
    model.breaks = r.chance(7);
    drafted_by = r.one_of({DraftedBy::nobody, DraftedBy::ngrams, DraftedBy::chance, DraftedBy::model});
    right = r.one_of({0, 50, 90, 100});
    if (r.chance(20)) failing_step = r.below(60);
    std::vector<std::int32_t> base(static_cast<std::size_t>(options.context));
    for (auto& id : base) id = r.one_of(model.alphabet);
    for (int i = r.between(crowded ? 4 : 1, 8); i > 0; --i) asks.push_back(ask(r, base, vocabulary));
  }

  // Dense, sliding, both, recurrent with each of them, and recurrent alone; mostly with hardly more than one text
  // needs.
  void choose_memory(Random& r) {
    const bool full = r.chance(65), sliding = r.chance(full ? 45 : 80);
    if (!full || r.chance(35)) options.slots = r.chance(full || sliding ? 60 : 100) ? r.between(1, 5) : 0;
    const auto most = static_cast<std::int32_t>(backend::pages_for(options.context));
    const bool tight = r.chance(80);
    options.pages = full ? most + (tight ? r.below(3) : 60) : 0;
    if (!sliding) return;
    options.window = r.one_of({1, 20, 63, 64, 65, 100, 128});
    // One text needs its window, a batch's rows, and a page for the edges.
    const auto one_text = static_cast<std::int32_t>(backend::pages_for(options.window + options.chunk)) + 1;
    options.sliding_pages = std::min(one_text, most) + (tight ? r.below(4) : 60);
  }

  Ask ask(Random& r, const std::vector<std::int32_t>& base, const text::Tokenizer& vocabulary) {
    Ask a;
    if (!asks.empty() && r.chance(20)) {
      a = asks.back();
      if (a.copy_of < 0) a.copy_of = static_cast<int>(asks.size()) - 1;
      a.options.sampling.seed = r.bits();
      if (r.chance(20)) a.options.max_tokens = r.below(9);
      if (r.chance(20)) a.arrives += r.below(8);
      a.reuse = r.chance(90);
      a.cancelled.reset();
      if (r.chance(15)) a.cancelled = r.below(20);
      return a;
    }
    const int longest = static_cast<int>(options.context) - 1;
    const int edge = crowded ? r.between(1, 40)
                             : r.one_of({1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, r.between(1, longest),
                                         std::max(static_cast<int>(options.window) + r.between(-1, 1), 1)});
    const int shared = r.chance(70) ? r.between(0, edge) : 0;
    for (int i = 0; i < std::min(edge, longest); ++i) {
      a.prompt.push_back(i < shared ? base[static_cast<std::size_t>(i)] : r.one_of(model.alphabet));
    }
    a.options.max_tokens = crowded ? r.between(60, 300) : r.one_of({0, 1, 2, 7, 40, 150, 300});
    choose_sampling(r, a);
    for (int i = r.one_of({0, 0, 1, 3}); i > 0; --i) {
      std::string stop;
      for (int n = r.between(1, 3); n > 0; --n) stop += vocabulary.decode({{r.one_of(model.alphabet)}});
      if (text::is_valid_utf8(stop) && !stop.empty()) a.options.stops.push_back(stop);
    }
    a.root = r.below(2);
    a.priority = r.one_of({0, 0, 0, 1, -1});
    a.top_logprobs = r.one_of({-1, -1, 0, 3});
    a.reuse = r.chance(85);
    a.speculate = r.chance(85);
    a.ignores_ends = r.chance(15);
    a.mask = r.one_of({0, 0, 0, 0, 0, 1, 2, 40});
    a.arrives = r.chance(50) || crowded ? r.below(3) : r.below(80);
    if (r.chance(25)) a.cancelled = r.below(30);
    if (r.chance(8)) a.start_by = r.below(20);
    if (r.chance(8)) a.finish_by = r.below(50);
    return a;
  }

  void choose_sampling(Random& r, Ask& a) const {
    sample::SamplerParameters& p = a.options.sampling;
    p.temperature = r.one_of({0.0f, 0.0f, 0.3f, 0.9f, 2.0f});
    p.seed = r.bits();
    if (r.chance(30)) p.top_k = r.between(1, 5);
    if (r.chance(30)) p.top_p = 0.7f;
    if (r.chance(10)) p.min_p = 0.1f;
    if (r.chance(20)) p.repetition_penalty = 1.3f;
    if (r.chance(20)) p.frequency_penalty = 0.5f;
    if (r.chance(20)) p.penalty_window = r.one_of({-1, 3, 70});
    if (r.chance(10)) p.dry_multiplier = 0.8f;
    if (r.chance(20)) p.logit_bias = {{r.one_of(model.alphabet), 2.0f}, {r.one_of(model.ends), 2.0f}};
    if (r.chance(10)) p.banned = {r.one_of(model.alphabet)};
  }

  // Without full layers and states it sees only its window.
  std::span<const std::int32_t> seen(std::span<const std::int32_t> text) const {
    const bool all = options.pages > 0 || options.window == 0;
    return all ? text : text.last(std::min(text.size(), static_cast<std::size_t>(options.window)));
  }

  std::uint64_t seed;
  BenchOptions options{};
  RandomModel model;
  DraftedBy drafted_by = DraftedBy::nobody;
  int right = 0;  // percent of the tokens that are drafted by chance, or of models that draft
  std::optional<int> failing_step;
  bool crowded = false;  // short prompts and long answers, all at once: memory runs out
  std::vector<Ask> asks;
};

inline RequestSpec spec_of(const LoopBench& bench, const Ask& ask) {
  RequestSpec spec = bench.spec(ask.prompt, ask.options);
  spec.root = digest(std::to_string(ask.root));
  spec.priority = ask.priority;
  spec.reuse = ask.reuse;
  spec.speculate = ask.speculate;
  spec.answer.top_logprobs = ask.top_logprobs;
  if (ask.ignores_ends) spec.answer.stop_ids.clear();
  if (ask.mask > 0) {  // by turns only some tokens are allowed; in the 41st turn none are
    spec.answer.token_mask = [mask = ask.mask](std::span<const std::int32_t> answer, std::span<std::uint32_t> allowed) {
      if (mask <= 2 && answer.size() % 2 == 1) allowed[3] &= mask == 1 ? 0x55555555 : 0x33333333;
      if (mask > 2 && std::ssize(answer) == mask) std::ranges::fill(allowed, 0);
    };
  }
  return spec;
}

// The first end of a stop string in `text`, and of those that end there the longest: (where it begins, which).
inline std::optional<std::pair<std::size_t, std::string>> first_stop(std::string_view text,
                                                                     const std::vector<std::string>& stops) {
  std::optional<std::pair<std::size_t, std::string>> best;
  for (const std::string& stop : stops) {
    const std::size_t at = text.find(stop);
    if (at == std::string_view::npos) continue;
    const auto end = [](const auto& match) { return match.first + match.second.size(); };
    const std::pair match(at, stop);
    if (!best || end(match) < end(*best) || (end(match) == end(*best) && stop.size() > best->second.size())) {
      best = match;
    }
  }
  return best;
}

struct Plainly {
  std::vector<std::int32_t> ids;
  std::string text, stop_match, logits_hash;
  std::vector<sample::LogProbabilities> log_probabilities;
  FinishReason finish = FinishReason::length;
  std::string error;

  // Whether the text has a stop string in it, and then it ends before that.
  bool cut(const std::vector<std::string>& stops) {
    const auto stop = first_stop(text, stops);
    if (!stop) return false;
    text.resize(stop->first);
    stop_match = stop->second;
    finish = FinishReason::stop;
    return true;
  }
};

inline Plainly say_plainly(const Scenario& scenario, const LoopBench& bench, const Ask& ask) {
  const RequestSpec spec = spec_of(bench, ask);
  const int size = bench.tokenizer->size();
  Plainly said;
  std::vector<std::int32_t> text = ask.prompt;
  std::vector<float> logits(static_cast<std::size_t>(size));
  std::vector<std::uint32_t> mask;
  std::vector<Digest> rows;
  sample::Scratch scratch(size, scenario.options.context);
  text::StreamDecoder decoder(bench.tokenizer);
  bool open = true;
  while (open && std::ssize(rows) < ask.options.max_tokens && std::ssize(text) < scenario.options.context) {
    scenario.model(scenario.seen(text), logits);
    mask.assign(sample::mask_words(size), ~std::uint32_t{0});
    if (spec.answer.token_mask) spec.answer.token_mask(said.ids, mask);
    const auto token =
        spec.answer.sampler.sample(sample::Row{logits}, text, std::ssize(text), scratch, {.mask = {mask}});
    if (!token) {
      said.finish = FinishReason::error;
      said.error = token.error().message;
      break;
    }
    rows.push_back(digest(std::as_bytes(std::span(logits))));
    if (std::ranges::binary_search(spec.answer.stop_ids, *token)) {
      said.finish = FinishReason::stop;
      break;
    }
    if (ask.top_logprobs >= 0) {
      sample::log_probabilities({logits}, *token, ask.top_logprobs, scratch, said.log_probabilities.emplace_back());
    }
    said.ids.push_back(*token);
    text.push_back(*token);
    said.text += decoder.push(*token);
    open = !said.cut(ask.options.stops);
  }
  if (open && said.error.empty()) {
    said.text += decoder.flush();
    said.cut(ask.options.stops);
  }
  said.logits_hash = to_hex(digest(std::as_bytes(std::span(rows))));
  return said;
}

}  // namespace adze::engine
