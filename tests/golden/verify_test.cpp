// Texts computed the way an engine with drafts computes them: rows that turn out to be wrong, rows of a log that are
// replayed, sliding pages that are given up and used again, forks. Every row gives the bits of plain decoding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "base/limits.hpp"
#include "golden/oracle.hpp"
#include "golden/runner.hpp"

namespace adze::test {
namespace {

using backend::kPageTokens;
using backend::PageGroup;

constexpr int kTexts = 3;
constexpr int kPositions = 200;  // of each text: windows of the tested models, and edges of pages
constexpr int kMaxRows = 112;

// Pages of one group, handed out in random order.
class Pages {
 public:
  Pages(std::int64_t count, std::mt19937& random) : random_(random) {
    for (std::int64_t i = 0; i < count; ++i) free_.push_back(static_cast<std::int32_t>(i));
  }
  std::int32_t take() {
    if (free_.empty()) throw std::runtime_error("no page is free");
    std::swap(free_[random_() % free_.size()], free_.back());
    const std::int32_t page = free_.back();
    free_.pop_back();
    return page;
  }
  void give_back(std::int32_t page) { free_.push_back(page); }

 private:
  std::mt19937& random_;
  std::vector<std::int32_t> free_;
};

// One sequence that computes a known text.
struct Text {
  std::vector<std::int32_t> tokens;
  const std::vector<float>* expected = nullptr;  // logits of all rows
  std::vector<std::int32_t> full{}, sliding{};
  std::int32_t slot = 0;
  int position = 0;  // of the first row that is not known to belong to it
  int replay = 0;    // rows before it that are in the log
  // Of the batch in flight:
  int certain = 0, accepted = 0, rows = 0;
};

class Driver {
 public:
  Driver(const ops::Plan& plan, int threads, unsigned seed)
      : plan_(plan),
        window_(backend::sliding_window(plan)),
        random_(seed),
        options_{.threads = threads,
                 .max_batch_rows = kMaxRows,
                 .max_pages = kTexts * backend::pages_for(kPositions + limits::kMaxDraft),
                 .max_sliding_pages = kTexts * std::min(backend::pages_for(window_ + kMaxRows) + 1,
                                                        backend::pages_for(kPositions + limits::kMaxDraft)),
                 .max_slots = kTexts},
        full_(options_.max_pages, random_),
        sliding_(options_.max_sliding_pages, random_) {
    auto prepared = backend::prepare(plan, options_);
    if (!prepared) throw std::runtime_error(prepared.error().message);
    prepared_ = std::move(*prepared);
  }

  std::mt19937& random() { return random_; }
  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  // Adds rows of a text to the next batch: a part of a prompt, or a token with drafts of which some are wrong.
  void add(Text& text) {
    const int left = static_cast<int>(text.tokens.size()) - text.position;
    if (left == 0) return;
    const bool prompt = below(4) == 0;
    text.certain = prompt ? std::min(left, 1 + below(40)) : 1;
    const int drafts = below(3) == 0 ? 0 : 1 + below(limits::kMaxDraft);
    text.accepted = std::min({left - text.certain, drafts, below(limits::kMaxDraft + 1)});
    text.rows = text.certain + drafts;
    while (std::ssize(text.full) * kPageTokens < text.position + text.rows) {
      text.full.push_back(full_.take());
      text.sliding.push_back(window_ > 0 ? sliding_.take() : -1);
    }
    const auto sequence = static_cast<std::int32_t>(sequences_.size());
    for (int i = 0; i < text.rows; ++i) {
      const std::int32_t token = i < text.certain + text.accepted
                                     ? text.tokens[static_cast<std::size_t>(text.position + i)]
                                     : below(plan_.vocabulary_size);
      rows_.push_back({token, sequence, text.position + i, true});
    }
    sequences_.push_back({.full = text.full,
                          .sliding = text.sliding,
                          .slot = text.slot,
                          .replay = text.replay,
                          .certain = prompt && drafts == 0 && below(2) == 0 ? 10'000 : text.certain});
    members_.push_back(&text);
  }

  void run() {
    const Status status = prepared_->run({rows_, sequences_});
    ASSERT_TRUE(status) << status.error().message;
    const auto vocabulary = static_cast<std::size_t>(plan_.vocabulary_size);
    int row = 0;
    for (Text* text : members_) {
      for (int i = 0; i < text->rows; ++i, ++row) {
        if (i >= text->certain + text->accepted) continue;
        const auto logits = prepared_->logits(row);
        const auto* expected = text->expected->data() + static_cast<std::size_t>(text->position + i) * vocabulary;
        ASSERT_TRUE(std::equal(logits.begin(), logits.end(), expected)) << "position " << text->position + i;
        ++compared_;
      }
      text->position += text->certain + text->accepted;
      text->replay = text->accepted;
      give_up_pages(*text);
    }
    rows_.clear();
    sequences_.clear();
    members_.clear();
  }

  // `to` goes on where `from` stands, which has nothing to replay.
  void fork(const Text& from, Text& to) {
    for (const std::int32_t page : to.full) full_.give_back(page);
    for (const std::int32_t page : to.sliding) {
      if (page >= 0) sliding_.give_back(page);
    }
    const std::int32_t slot = to.slot;
    to = from;
    to.slot = slot;
    for (std::int32_t& page : to.full) page = copy(PageGroup::full, full_, page);
    for (std::int32_t& page : to.sliding) page = page < 0 ? page : copy(PageGroup::sliding, sliding_, page);
    if (!plan_.state_layers.empty()) prepared_->copy_state(from.slot, to.slot);
  }

  int compared() const { return compared_; }

 private:
  std::int32_t copy(PageGroup group, Pages& pool, std::int32_t page) {
    const std::int32_t to = pool.take();
    prepared_->copy_page(group, page, to);
    return to;
  }

  // Somebody else's keys and values stand there next.
  void give_up_pages(Text& text) {
    for (std::size_t i = 0; i < text.sliding.size(); ++i) {
      if (window_ == 0 || (static_cast<int>(i) + 1) * kPageTokens > text.position - window_ + 1) return;
      if (text.sliding[i] >= 0) sliding_.give_back(std::exchange(text.sliding[i], -1));
    }
  }

  const ops::Plan& plan_;
  int window_;
  std::mt19937 random_;
  backend::PrepareOptions options_;
  Pages full_, sliding_;
  std::unique_ptr<backend::Prepared> prepared_;
  std::vector<backend::Row> rows_;
  std::vector<backend::SequencePages> sequences_;
  std::vector<Text*> members_;
  int compared_ = 0;
};

class Verify : public OracleTest {};

TEST_P(Verify, EveryRowHasTheBitsOfPlainDecoding) {
  const Oracle oracle(GetParam().model);
  const OracleModel loaded = load_oracle(oracle, GetParam().type);
  const ops::Plan& plan = loaded.model->plan();
  std::vector<std::int32_t> long_prompt = oracle.prompt("p600");
  std::vector<std::int32_t> tokens[kTexts];
  std::vector<float> expected[kTexts];
  for (int i = 0; i < kTexts; ++i) {
    tokens[i].assign(long_prompt.begin() + 100 * i, long_prompt.begin() + 100 * i + kPositions);
    Runner runner(plan, {.prepare = {.threads = 2, .max_batch_rows = kPositions}, .positions = kPositions});
    expected[i] = runner.prompt(tokens[i], kPositions, i == 0 ? 1 : kPositions);
  }
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Driver driver(plan, 1 + static_cast<int>(seed % 3), seed);
    Text texts[kTexts];
    for (int i = 0; i < kTexts; ++i) texts[i] = {.tokens = tokens[i], .expected = &expected[i], .slot = kTexts - 1 - i};
    int forks = 0;
    const auto unfinished = [](const Text& text) { return text.position < std::ssize(text.tokens); };
    while (std::ranges::any_of(texts, unfinished)) {
      const int first = driver.below(kTexts), second = (first + 1 + driver.below(kTexts - 1)) % kTexts;
      driver.add(texts[first]);
      if (driver.below(3) > 0) driver.add(texts[second]);
      driver.run();
      if (HasFatalFailure()) return;
      if (forks < 4 && texts[first].replay == 0 && texts[first].position > 64 && driver.below(6) == 0) {
        driver.fork(texts[first], texts[second]);
        ++forks;
      }
    }
    EXPECT_GT(driver.compared(), kPositions);
  }
}

INSTANTIATE_TEST_SUITE_P(Hybrid, Verify,
                         testing::Values(OracleRow{"qwen3_5-dense", "mtp-BF16"}, OracleRow{"qwen3_5-k256", "Q4_K"},
                                         OracleRow{"qwen3_5-moe", "BF16"}, OracleRow{"qwen3-next", "BF16"}),
                         [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Sliding, Verify,
                         testing::Values(OracleRow{"gemma2", "BF16"}, OracleRow{"gemma3-text", "Q8_0"},
                                         OracleRow{"gemma4-e2b", "BF16"}, OracleRow{"gemma4-moe", "BF16"},
                                         OracleRow{"cohere2", "BF16"}, OracleRow{"gpt-oss", "MXFP4"},
                                         OracleRow{"mistral-swa", "HF"}),
                         [](const auto& row) { return oracle_row_name(row.param); });
INSTANTIATE_TEST_SUITE_P(Full, Verify, testing::Values(OracleRow{"llama-gqa-rope3", "Q8_0"}),
                         [](const auto& row) { return oracle_row_name(row.param); });

}  // namespace
}  // namespace adze::test
