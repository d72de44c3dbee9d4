// A model for tests, without weights: it reads the tokens before each wanted row back through the page tables and asks
// a function for the logits. So the engine's bookkeeping is under test as well: a row in the wrong page, a page shared
// by mistake or a position left out changes what the function sees, or aborts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.hpp"

namespace adze::engine {

struct ScriptedOptions {
  int vocabulary = 0;
  std::int64_t context = 0;
  int max_batch_rows = 256;
  std::int32_t pages = 0;          // of full layers; 0: it has none, and the function sees the window, or the state
  std::int32_t sliding_pages = 0;  // more: it has sliding layers too, with `window`
  std::int64_t window = 0;
  std::int32_t slots = 0;  // more: behaves as a recurrent model, whose state only goes forward
};

class ScriptedBackend final : public backend::Prepared {
 public:
  // history: the tokens up to and including the row; logits [vocabulary], zeros.
  using Model = std::function<void(std::span<const std::int32_t> history, std::span<float> logits)>;

  ScriptedBackend(ScriptedOptions options, Model model);

  const backend::Schedule& schedule() const override { return schedule_; }
  backend::MemoryUse memory() const override;
  Status run(const backend::Batch& batch) override;
  std::span<const float> logits(int wanted) const override;
  void observe(backend::StepObserver* observer) override { observer_ = observer; }
  void copy_page(backend::PageGroup group, std::int32_t from, std::int32_t to) override;
  void copy_state(std::int32_t from, std::int32_t to) override;

  std::int64_t rows_run() const { return rows_run_; }
  std::int64_t runs() const { return runs_; }
  std::int64_t copies() const { return copies_; }
  void fail_next_run(Error error) { failure_ = std::move(error); }

  // After a prompt of `prompt_length` tokens says `ids`, whatever was sampled meanwhile, then `end` for ever. Each
  // scripted token leads by far; when it is masked, the lowest other id follows.
  static Model play(std::vector<std::int32_t> ids, std::int64_t prompt_length, std::int32_t end);
  // Pseudo-random logits in [-4, 4], a function of the whole history.
  static Model noise(std::uint64_t seed);

 private:
  struct State {
    std::vector<std::int32_t> seen, log;
  };

  std::vector<std::int32_t>& cells(backend::PageGroup group) { return cells_[static_cast<std::size_t>(group)]; }
  std::int32_t pages_of(backend::PageGroup group) const;
  std::int32_t& cell(backend::PageGroup group, const backend::SequencePages& sequence, std::int32_t position);
  void read(backend::PageGroup group, const backend::SequencePages& sequence, std::int32_t last,
            std::vector<std::int32_t>& history);
  void replay(const backend::Batch& batch);
  void move_state(const backend::SequencePages& sequence, const backend::Row& row, int index);
  std::vector<std::int32_t> text_of(const backend::SequencePages& sequence) const;
  void check_state(const backend::SequencePages& sequence, std::span<const std::int32_t> history) const;

  ScriptedOptions options_;
  Model model_;
  backend::Schedule schedule_;
  std::vector<std::int32_t> cells_[2];  // [pages, kPageTokens]: the token at each position, -1 where nothing was stored
  std::vector<State> states_;           // [slots]: the tokens that each has seen, and its log
  std::vector<std::vector<float>> logits_;
  backend::StepObserver* observer_ = nullptr;
  std::int64_t rows_run_ = 0;
  std::int64_t runs_ = 0;
  std::int64_t copies_ = 0;
  std::optional<Error> failure_;
};

}  // namespace adze::engine
