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
  std::int32_t pages = 0;
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

  std::int64_t rows_run() const { return rows_run_; }
  std::int64_t runs() const { return runs_; }
  void fail_next_run(Error error) { failure_ = std::move(error); }

  // After a prompt of `prompt_length` tokens says `ids`, whatever was sampled meanwhile, then `end` for ever. Each
  // scripted token leads by far; when it is masked, the lowest other id follows.
  static Model play(std::vector<std::int32_t> ids, std::int64_t prompt_length, std::int32_t end);
  // Pseudo-random logits in [-4, 4], a function of the whole history.
  static Model noise(std::uint64_t seed);

 private:
  std::int32_t& cell(const backend::SequencePages& sequence, std::int32_t position);
  void move_state(const backend::SequencePages& sequence, const backend::Row& row);

  ScriptedOptions options_;
  Model model_;
  backend::Schedule schedule_;
  std::vector<std::int32_t> cells_;  // [pages, kPageTokens]: the token at each position, -1 where nothing was stored
  std::vector<std::vector<std::int32_t>> states_;  // [slots]: the tokens that each has seen
  std::vector<std::vector<float>> logits_;
  backend::StepObserver* observer_ = nullptr;
  std::int64_t rows_run_ = 0;
  std::int64_t runs_ = 0;
  std::optional<Error> failure_;
};

}  // namespace adze::engine
