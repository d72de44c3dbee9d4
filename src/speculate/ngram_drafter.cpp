#include "speculate/ngram_drafter.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.hpp"
#include "sample/random.hpp"
#include "speculate/context_table.hpp"
#include "speculate/evidence.hpp"
#include "speculate/span_finder.hpp"

namespace adze::speculate {
namespace {

using Tokens = std::span<const std::int32_t>;

// Every policy number of the drafter, but those of evidence.cpp.
constexpr int kLeastOrder = 2;  // tokens of a context
constexpr int kOrders = 3;
constexpr double kLeastConfidence = 0.4;
constexpr double kLeastTrust = 0.3;  // of a kind of evidence
constexpr double kLeastReach = 0.2;  // chance that a token is reached and right, below which a draft ends
constexpr int kLeastCopy = 5;        // tokens that agree: more than any table looks at
constexpr int kSureCopy = 8;         // so many are evidence that has repeated itself
constexpr int kResumeWindow = 8;     // tokens of the source that an edit may have left out
constexpr int kMostResumptions = 3;  // drafts without a single accepted token, until the copy counts as over

// The hashes of the contexts of 2, 3 and 4 tokens at a text's end; one that does not reach so far is 0.
using Keys = std::array<std::uint64_t, kOrders>;
template <class TokenAt>
Keys keys_at(std::int64_t length, TokenAt token_at) {
  Keys keys{};
  std::uint64_t key = 0;
  for (int n = 1; n < kLeastOrder + kOrders && n <= length; ++n) {
    key = (key + static_cast<std::uint64_t>(token_at(length - n)) + 1) * sample::kGolden;
    key ^= key >> 32;
    if (n >= kLeastOrder) keys[static_cast<std::size_t>(n - kLeastOrder)] = key;
  }
  return keys;
}

}  // namespace

class NgramDrafter::Text {
 public:
  void eat(Tokens text);
  void draft(DraftJob& job, const DraftRules& rules);
  void verified(Tokens draft, int accepted);
  std::size_t memory_bytes() const;

 private:
  // The text's end with a draft behind it.
  static std::int32_t token_at(Tokens text, Tokens draft, std::int64_t position) {
    const auto length = static_cast<std::int64_t>(text.size());
    return position < length ? text[static_cast<std::size_t>(position)]
                             : draft[static_cast<std::size_t>(position - length)];
  }
  bool add(DraftJob& job, std::int32_t token, Kind kind);
  void draft_from_tables(DraftJob& job, int most, int least_support);
  void copy(DraftJob& job, std::int64_t from, int agreed, int most);
  std::int64_t resumption(Tokens text) const;

  std::array<ContextTable, kOrders> tables_;
  SpanFinder spans_;
  Evidence evidence_;
  std::size_t eaten_ = 0;
  std::array<std::int32_t, kLeastOrder + kOrders - 1> tail_{};  // of the text when the last draft was made

  std::array<Kind, limits::kMaxDraft> kinds_{};  // of the last draft's tokens
  double reach_ = 1;                             // the chance that it holds up to here

  // The copy that the last draft was made from: where its first token stood, -1 for none; and what became of it.
  std::int64_t source_ = -1;
  int failures_ = 0;                 // resumptions in a row of which nothing was accepted
  std::int64_t resume_source_ = -1;  // the source's token that the model did not say
  std::size_t resume_length_ = 0;    // of the text, when the model's own word stands there
};

void NgramDrafter::Text::eat(Tokens text) {
  ADZE_CHECK(text.size() >= eaten_, "a text shrank from {} tokens to {}", eaten_, text.size());
  for (std::size_t i = eaten_; i < text.size(); ++i) {
    const Keys keys =
        keys_at(static_cast<std::int64_t>(i), [&](std::int64_t at) { return text[static_cast<std::size_t>(at)]; });
    for (std::size_t order = 0; order < kOrders && i >= order + kLeastOrder; ++order) {
      tables_[order].observe(keys[order], text[i], static_cast<std::uint32_t>(i));
    }
  }
  eaten_ = text.size();
  spans_.eat(text);
}

// Whether the token was worth drafting; then it was added.
bool NgramDrafter::Text::add(DraftJob& job, std::int32_t token, Kind kind) {
  const double trust = evidence_.trust(kind);
  if (trust < kLeastTrust && !(job.draft.empty() && evidence_.due(kind))) {
    if (job.draft.empty()) evidence_.passed_over(kind);
    return false;
  }
  if (!job.draft.empty() && reach_ * trust < kLeastReach) return false;
  reach_ *= trust;
  kinds_[job.draft.size()] = kind;
  job.draft.push_back(token);
  return true;
}

// The longest context that is sure enough, token by token.
void NgramDrafter::Text::draft_from_tables(DraftJob& job, int most, int least_support) {
  const auto length = static_cast<std::int64_t>(job.text.size());
  for (int n = 0; n < most; ++n) {
    const Keys keys = keys_at(length + n, [&](std::int64_t at) { return token_at(job.text, job.draft, at); });
    bool added = false;
    for (int order = kOrders; order-- > 0 && !added;) {
      const Context* context = tables_[static_cast<std::size_t>(order)].find(keys[static_cast<std::size_t>(order)]);
      if (context == nullptr) continue;
      const Continuation* best = context->best();
      if (best->count < least_support || context->confidence(*best) < kLeastConfidence) continue;
      added = add(job, best->token, kind_of_context(order + kLeastOrder, best->count));
    }
    if (!added) return;
  }
}

// A source that reaches into the draft itself goes round: a loop is continued as a loop. agreed: tokens that agree
// already; 0 behind the model's own word.
void NgramDrafter::Text::copy(DraftJob& job, std::int64_t from, int agreed, int most) {
  for (int n = 0; n < most; ++n) {
    const Kind kind = agreed == 0 && n < kLeastCopy ? Kind::resumed : kind_of_copy(agreed + n);
    if (!add(job, token_at(job.text, job.draft, from + n), kind)) break;
  }
  if (!job.draft.empty()) source_ = from;
}

// Behind the model's own word the source goes on: after the token that it replaced, or, where the word stands a little
// further on, after that.
std::int64_t NgramDrafter::Text::resumption(Tokens text) const {
  if (resume_source_ < 0 || resume_length_ != text.size()) return -1;
  const auto end = static_cast<std::int64_t>(text.size());
  for (std::int64_t at = resume_source_ + 1; at < std::min(resume_source_ + 1 + kResumeWindow, end - 1); ++at) {
    if (text[static_cast<std::size_t>(at)] == text.back()) return at + 1;
  }
  return resume_source_ + 1 < end ? resume_source_ + 1 : -1;
}

void NgramDrafter::Text::draft(DraftJob& job, const DraftRules& rules) {
  eat(job.text);
  for (std::size_t i = 0; i < tail_.size() && i < eaten_; ++i) tail_[i] = job.text[eaten_ - 1 - i];
  source_ = -1;
  const int most = std::min(job.most, rules.longest);
  const Span span = spans_.find(job.text);
  const bool seen_enough = span.places >= rules.least_support || span.length >= kSureCopy;
  reach_ = 1;
  if (span.next >= 0 && seen_enough && span.length >= kLeastCopy) copy(job, span.next, span.length, most);
  if (job.draft.empty()) draft_from_tables(job, most, rules.least_support);
  if (!job.draft.empty()) return;
  const std::int64_t resume = resumption(job.text);
  if (resume >= 0) copy(job, resume, 0, most);
}

void NgramDrafter::Text::verified(Tokens draft, int accepted) {
  for (int i = 0; i < std::min(accepted + 1, static_cast<int>(draft.size())); ++i) {
    const auto at = [&](std::int64_t position) {  // of the tail and the draft behind it
      const std::int64_t back = static_cast<std::int64_t>(eaten_) - 1 - position;
      return back >= 0 ? tail_[static_cast<std::size_t>(back)] : draft[static_cast<std::size_t>(-back - 1)];
    };
    const Keys keys = keys_at(static_cast<std::int64_t>(eaten_) + i, at);
    evidence_.used(kinds_[static_cast<std::size_t>(i)], i < accepted);
    for (int order = kOrders; order-- > 0;) {
      const auto o = static_cast<std::size_t>(order);
      if (tables_[o].feed_back(keys[o], draft[static_cast<std::size_t>(i)], i < accepted)) break;
    }
  }
  if (source_ < 0) return;
  failures_ = accepted > 0 ? 0 : failures_ + 1;
  const bool over = accepted == static_cast<int>(draft.size()) || failures_ > kMostResumptions;
  resume_source_ = over ? -1 : source_ + accepted;
  resume_length_ = eaten_ + static_cast<std::size_t>(accepted) + 1;
  source_ = -1;
}

std::size_t NgramDrafter::Text::memory_bytes() const {
  std::size_t bytes = sizeof(Text) + spans_.memory_bytes();
  for (const ContextTable& table : tables_) bytes += table.memory_bytes();
  return bytes;
}

NgramDrafter::NgramDrafter(DraftRules rules) : rules_(rules) {}
NgramDrafter::~NgramDrafter() = default;

void NgramDrafter::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    ADZE_CHECK(job.most > 0, "a draft of {} tokens", job.most);
    job.draft.clear();
    std::unique_ptr<Text>& text = texts_[job.request];
    if (text == nullptr) text = std::make_unique<Text>();
    text->draft(job, rules_);
  }
}

void NgramDrafter::verified(std::uint64_t request, std::span<const std::int32_t> draft, int accepted) {
  const auto found = texts_.find(request);
  if (found != texts_.end()) found->second->verified(draft, accepted);
}

void NgramDrafter::forget(std::uint64_t request) { texts_.erase(request); }

std::size_t NgramDrafter::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [request, text] : texts_) bytes += text->memory_bytes();
  return bytes;
}

}  // namespace adze::speculate
