#include "speculate/model_drafter.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace adze::speculate {

using Tokens = std::span<const std::int32_t>;

static_assert(sample::kMaximaBlock == backend::kLogitBlock);

void ModelDrafter::Copies::copy_page(cache::Group group, std::int32_t from, std::int32_t to) {
  model_->copy_page(group == cache::Group::full ? backend::PageGroup::full : backend::PageGroup::sliding, from, to);
}

void ModelDrafter::Copies::copy_state(std::int32_t from, std::int32_t to) { model_->copy_state(from, to); }

ModelDrafter::ModelDrafter(backend::Prepared& model, const ModelDrafterOptions& options)
    : model_(&model),
      options_(options),
      copies_(model),
      cache_(options.cache, copies_),
      scratch_(options.vocabulary, options.context + limits::kMaxDraft) {
  ADZE_CHECK(options.max_rows > 0 && options.catch_up_rows > 0, "{} rows a pass, {} a call", options.max_rows,
             options.catch_up_rows);
}

ModelDrafter::~ModelDrafter() = default;

void ModelDrafter::propose(std::span<DraftJob> jobs) {
  works_.clear();
  for (DraftJob& job : jobs) {
    ADZE_CHECK(job.most > 0 && job.sampler != nullptr, "a draft of {} tokens", job.most);
    job.draft.clear();
    if (job.text.empty() || std::ssize(job.text) > options_.context) continue;
    Text& text = text_of(job);
    if (job.text.size() == text.ids.size()) {  // no row was computed for it meanwhile
      job.draft.assign(text.draft.begin(),
                       text.draft.begin() + std::min<std::ptrdiff_t>(std::ssize(text.draft), job.most));
      if (std::ssize(text.ids) == text.kv.length()) continue;
    } else {
      take_in(text, job.text);
    }
    if (text.kv.length() == 0) text.kv.attach(text.ids, std::ssize(text.ids));
    works_.push_back({.job = &job, .text = &text});
  }
  // A long prompt waits for those that have little to take in.
  const auto waiting = [](const Work& work) { return std::ssize(work.job->text) - work.text->kv.length(); };
  std::ranges::stable_sort(works_, {}, waiting);
  catch_up();
  lengthen();
  for (const Work& work : works_) {
    work.text->fork.reset();
    work.text->ids.resize(work.job->text.size());
    work.text->draft = work.job->draft;
  }
}

// The text says it all when it is next seen.
void ModelDrafter::verified(std::uint64_t /*request*/, Tokens /*draft*/, int /*accepted*/) {}

void ModelDrafter::forget(std::uint64_t request) {
  const auto found = texts_.find(request);
  if (found == texts_.end()) return;
  hand_over(*found->second);
  texts_.erase(found);
}

ModelDrafter::Text& ModelDrafter::text_of(const DraftJob& job) {
  std::unique_ptr<Text>& text = texts_[job.request];
  if (text == nullptr) text = std::make_unique<Text>(cache_.open(options_.root));
  return *text;
}

// Drafted rows that turned out to be the text are kept.
void ModelDrafter::take_in(Text& text, Tokens now) {
  ADZE_CHECK(now.size() > text.ids.size(), "a text shrank from {} tokens to {}", text.ids.size(), now.size());
  const Tokens fresh = now.subspan(text.ids.size());
  // The last token is computed in any case: its logits are wanted.
  const std::int64_t most = std::min<std::int64_t>(text.room_rows, std::ssize(fresh) - 1);
  std::int64_t same = 0;
  while (same < most && fresh[static_cast<std::size_t>(same)] == text.draft[static_cast<std::size_t>(same)]) ++same;
  text.ids.insert(text.ids.end(), fresh.begin(), fresh.end());
  text.draft.clear();
  text.room_rows = 0;
  if (same > 0) text.kv.commit(same);
  text.kv.shrink();
  text.kv.publish(text.ids);
}

// How many rows of the text go into a pass with room for `left`.
int ModelDrafter::next_rows(const Work& work, int left) const {
  const cache::KvSequence& kv = work.text->kv;
  std::int64_t rows = std::min<std::int64_t>(std::ssize(work.job->text) - kv.length(), left);
  const std::int64_t stop = kv.next_stop(work.job->prompt_length);
  if (stop > kv.length()) rows = std::min(rows, stop - kv.length());
  return static_cast<int>(rows);
}

// Computes what is new of each text, and draws the first token of each draft.
void ModelDrafter::catch_up() {
  std::vector<int> counts;  // of rows, by member
  int budget = options_.catch_up_rows;
  std::vector<char> out(works_.size(), 0);  // works that had no room, or whose pass failed
  for (;;) {
    begin_pass();
    counts.clear();
    for (std::size_t w = 0; w < works_.size(); ++w) {
      Work& work = works_[w];
      Text& text = *work.text;
      const int rows = next_rows(work, std::min(budget, options_.max_rows - static_cast<int>(rows_.size())));
      if (out[w] != 0 || rows <= 0) continue;
      const std::int64_t first = text.kv.length();
      if (!reserve(text.kv, first + rows)) {
        out[w] = 1;
        ++statistics_.failures;
        continue;
      }
      const Tokens ids = Tokens(text.ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
      add_rows(text.kv, first, ids, first + rows == std::ssize(work.job->text));
      members_.push_back(&work);
      counts.push_back(rows);
      budget -= rows;
    }
    if (members_.empty()) return;
    const bool good = run_pass();
    int wanted = 0;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      Work& work = *members_[m];
      Text& text = *work.text;
      if (!good) {
        out[static_cast<std::size_t>(&work - works_.data())] = 1;
        ++statistics_.failures;
        if (recurrent()) text.kv.clear();  // its state may have moved
        continue;
      }
      text.kv.commit(counts[m]);
      text.kv.publish(text.ids);
      if (text.kv.length() == std::ssize(work.job->text)) draw(work, wanted++);
    }
  }
}

// A token more for every draft that may have one, until there is none.
void ModelDrafter::lengthen() {
  for (;;) {
    begin_pass();
    for (Work& work : works_) {
      if (!work.grows || static_cast<int>(rows_.size()) == options_.max_rows) continue;
      if (add_next_row(work)) {
        members_.push_back(&work);
      } else {
        work.grows = false;
      }
    }
    if (members_.empty()) return;
    const bool good = run_pass();
    int wanted = 0;
    for (Work* work : members_) {
      Text& text = *work->text;
      if (!good) {
        work->grows = false;
        ++statistics_.failures;
        continue;
      }
      if (text.fork) {
        text.fork->commit(1);
      } else {
        ++text.room_rows;
      }
      draw(*work, wanted++);
    }
  }
}

bool ModelDrafter::add_next_row(Work& work) {
  Text& text = *work.text;
  const std::int64_t position = std::ssize(text.ids) - 1;  // of the token that was drafted last
  if (position >= options_.context) return false;
  if (recurrent() && !text.fork) {
    auto fork = text.kv.fork();
    if (!fork) {
      hand_over_idle();
      fork = text.kv.fork();
    }
    if (!fork) {
      ++statistics_.failures;
      return false;
    }
    text.fork.emplace(std::move(*fork));
  }
  cache::KvSequence& sequence = text.fork ? *text.fork : text.kv;
  if (!reserve(sequence, position + 1)) {
    ++statistics_.failures;
    return false;
  }
  add_rows(sequence, position, Tokens(text.ids).last(1), true);
  return true;
}

// The token behind the text and its draft so far, as the request itself would draw it.
void ModelDrafter::draw(Work& work, int wanted) {
  Text& text = *work.text;
  sample::Row row{model_->logits(wanted), model_->logit_maxima(wanted)};
  const auto vocabulary = static_cast<std::size_t>(options_.vocabulary);
  if (row.logits.size() > vocabulary) {
    row = {row.logits.first(vocabulary)};
  } else if (row.logits.size() < vocabulary) {
    constexpr float kNever = -1e30F;  // finite, as a logit must be
    padded_.assign(row.logits.begin(), row.logits.end());
    padded_.resize(vocabulary, kNever);
    row = {padded_};
  }
  const auto token = work.job->sampler->sample(row, text.ids, std::ssize(text.ids), scratch_);
  work.grows = token.has_value();
  if (!token) return;
  text.ids.push_back(*token);
  work.job->draft.push_back(*token);
  work.grows = static_cast<int>(work.job->draft.size()) < work.job->most;
}

bool ModelDrafter::reserve(cache::KvSequence& sequence, std::int64_t length) {
  if (sequence.reserve(length)) return true;
  hand_over_idle();
  return sequence.reserve(length).has_value();
}

void ModelDrafter::hand_over_idle() {
  for (const auto& [request, text] : texts_) {
    const bool busy = std::ranges::any_of(works_, [&](const Work& work) { return work.text == text.get(); });
    if (!busy) hand_over(*text);
  }
}

// What is known of the text is the index's from here on, which gives it up when room is needed.
void ModelDrafter::hand_over(Text& text) {
  text.room_rows = 0;
  text.draft.clear();
  if (text.kv.length() == 0) {
    text.kv.clear();
  } else {
    text.kv.publish_tail(text.ids, cache::KvSequence::State::hand_over);
  }
}

void ModelDrafter::begin_pass() {
  members_.clear();
  rows_.clear();
  sequences_.clear();
}

void ModelDrafter::add_rows(const cache::KvSequence& sequence, std::int64_t first, Tokens ids, bool wanted) {
  const auto index = static_cast<std::int32_t>(sequences_.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    rows_.push_back({.token = ids[i],
                     .sequence = index,
                     .position = static_cast<std::int32_t>(first + static_cast<std::int64_t>(i)),
                     .wants_logits = wanted && i + 1 == ids.size()});
  }
  sequences_.push_back({.full = sequence.full(), .sliding = sequence.sliding(), .slot = std::max(sequence.slot(), 0)});
}

bool ModelDrafter::run_pass() {
  ++statistics_.passes;
  statistics_.rows += std::ssize(rows_);
  return model_->run({.rows = rows_, .sequences = sequences_}).has_value();
}

}  // namespace adze::speculate
