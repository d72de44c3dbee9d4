// What the engine asks of a device. A backend prepares a Plan once into a schedule of dispatches and then runs it on
// ragged batches. One Prepared is driven by one thread at a time; distinct ones are independent (no global state).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/choices.hpp"
#include "backend/packs.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"
#include "ops/plan.hpp"

namespace adze::backend {

// Positions in one page of KV. Fixed: attention's partitions and (later) the prefix cache are multiples of it.
inline constexpr int kPageTokens = 64;
// Pages that so many positions of one sequence take.
constexpr std::int64_t pages_for(std::int64_t positions) { return (positions + kPageTokens - 1) / kPageTokens; }

// How the inputs of matrix products are held. `automatic`: int8 for quantised weights, float32 for float weights.
enum class Compute : std::uint8_t { automatic, f32 };
enum class KvType : std::uint8_t { automatic, f32, f16, q8_0 };  // automatic: f16, or f32 under Compute::f32

struct PrepareOptions {
  Compute compute = Compute::automatic;
  KvType kv_type = KvType::automatic;
  std::string kernel_set{};            // instruction set of the kernels ("avx2"); empty: the best that the machine runs
  int threads = 0;                     // 0: one per core that the process may use
  int max_batch_rows = 256;            // rows of one run(); scratch is sized by it
  std::int64_t max_pages = 0;          // pages of KV that the pool may hand out, of full layers
  std::int64_t max_sliding_pages = 0;  // the same of sliding layers
  // Weights in the layout that kernels read fastest, in memory of their own: more memory, the same bits.
  bool pack_in_memory = false;
  PackOptions packs{};            // the same in a file that is kept; not together
  std::vector<Choice> choices{};  // of a profile; the built-in rules choose the rest
  bool concurrent = false;        // dispatches that need nothing of each other run side by side: the same bits
  int max_slots = 1;  // sequences whose recurrent state is kept; nothing for a plan without recurrent layers
};

inline constexpr int kLogitBlock = 64;

// One row of a ragged batch: a prompt token, a decoded token, or (later) a draft to verify.
struct Row {
  std::int32_t token = 0;
  std::int32_t sequence = 0;  // index into Batch::sequences
  std::int32_t position = 0;
  bool wants_logits = false;
};

// Attention layers that read every position, and those that read only a window of the last ones, keep their pages apart
// (docs/design/0018).
enum class PageGroup : std::uint8_t { full, sliding };
constexpr PageGroup page_group(const ops::KvLayer& layer) {
  return layer.window == 0 ? PageGroup::full : PageGroup::sliding;
}
// Positions, its own included, that a row sees of the sliding layers: the largest of their windows. 0: there are none.
int sliding_window(const ops::Plan& plan);

// What one sequence's rows read and write. Its page tables: entry i holds positions [i * kPageTokens, (i + 1) *
// kPageTokens); in `sliding` -1 stands for a page that no row of the batch sees any more. A group without layers needs
// no table. And, for a plan with recurrent layers, its slot: `replay` rows of the slot's log belong to the text and are
// applied first; of the batch's own rows of this sequence the first `certain` belong to it, and the others, at most
// limits::kMaxDraft, go to the log, which holds only them afterwards.
struct SequencePages {
  std::span<const std::int32_t> full;
  std::span<const std::int32_t> sliding{};
  std::int32_t slot = 0;
  std::int32_t replay = 0;
  std::int32_t certain = std::numeric_limits<std::int32_t>::max();
};

// Rows of one sequence stand together, positions ascending by one; every earlier position of the sequence has been run.
// A recurrent state cannot go back: a sequence goes on where its slot and the replayed rows stand, or begins again at
// position 0, which clears the slot. Sequences with rows in a batch have slots of their own.
struct Batch {
  std::span<const Row> rows;
  std::span<const SequencePages> sequences;
};

// One dispatch of the schedule: the steps it covers and the kernel chosen for them, with the reasons. A step whose
// parts are shared among threads in several ways stands in several dispatches.
struct DispatchInfo {
  std::string name;                   // "Project + AttentionPrep", "Experts (gate, up)" ...
  int first_step = 0, last_step = 0;  // inclusive, indices into Plan::steps
  int layer = -1;                     // of the first step
  std::string kernel;                 // "q4_1 x int8/32, avx512_vnni"
  std::string reason;                 // for the kernel
  std::string shape;                  // of its products, for choices: "ProjectAdd Q4_1 576x576"; empty without any
  std::vector<std::string> choices;   // how the kernel is driven, and whether a rule or a profile says so
  std::string together;               // why the steps stand together; empty for a single one
  bool meets = true;                  // false: side by side with the next dispatch
  // Times that all threads meet, the end included: for one row, and for the many of a prompt.
  int barriers = 1, barriers_of_many_rows = 1;
};

struct Schedule {
  std::string backend;        // "cpu"
  std::string numeric_class;  // weight types, activation types, KV type: part of every cache key
  std::vector<DispatchInfo> dispatches;
  std::vector<std::string> choices;  // for whole passes, as those of a dispatch
  Digest route;                      // over the dispatches and their kernels
};

struct MemoryUse {
  std::uint64_t weight_bytes = 0;            // mapped, shared with other processes
  std::uint64_t packed_bytes = 0;            // of those that are read packed, once they are
  std::uint64_t scratch_bytes = 0;           // private, allocated by prepare()
  std::uint64_t bytes_per_page = 0;          // over all full layers
  std::uint64_t bytes_per_sliding_page = 0;  // over all sliding layers
  std::uint64_t kv_bytes_reserved = 0;       // of both groups' pages; touched as pages are used
  std::uint64_t bytes_per_slot = 0;          // recurrent state of one sequence; 0: the plan has none
  std::uint64_t state_bytes_reserved = 0;    // max_slots * bytes_per_slot
};

// Sees what goes through a plan, for debugging and for measuring it: every row of every batch, in steps of one dispatch
// each. Values are rows [rows, width], row-major, and valid during the call.
struct StepObserver {
  virtual ~StepObserver() = default;
  // Whether before_step() and after_experts() are called for this step: they cost copies.
  virtual bool wants_inputs(int /*step*/) const { return false; }
  // Each buffer that the step reads, in the order of ops::step_access.
  virtual void before_step(int /*step*/, ops::BufferId /*buffer*/, std::span<const float> /*values*/, int /*rows*/) {}
  // The buffer that the step wrote.
  virtual void after_step(int /*step*/, const ops::Buffer& /*buffer*/, std::span<const float> /*values*/,
                          int /*rows*/) {}
  // After an Experts step, for each expert that had rows (the shared one last): what its down product read.
  virtual void after_experts(int /*step*/, int /*expert*/, std::span<const float> /*activated*/, int /*rows*/) {}
};

class Prepared {
 public:
  virtual ~Prepared() = default;
  virtual const Schedule& schedule() const = 0;
  virtual MemoryUse memory() const = 0;

  // Computes the batch and appends its K and V. Errors: invalid_argument (more rows than max_batch_rows, a token
  // outside the vocabulary, a position outside its pages or the plan's context, a slot that does not exist or stands
  // elsewhere). Recurrent states have moved on unless the argument was invalid. A row whose logits are not finite is
  // that row's trouble: whoever reads them looks.
  virtual Status run(const Batch& batch) = 0;
  // float32 [vocabulary] of the i-th row of the last batch that wanted logits; valid until the next run().
  virtual std::span<const float> logits(int wanted) const = 0;
  // The largest of each kLogitBlock of those logits, the last of fewer, for whoever looks for the best; empty where the
  // backend does not have them, or one of the logits is not finite.
  virtual std::span<const float> logit_maxima(int /*wanted*/) const { return {}; }
  virtual void observe(StepObserver* observer) = 0;  // nullptr: none

  // Between runs: all K and V of a page of the group, or the committed state of a slot (its log becomes empty).
  virtual void copy_page(PageGroup group, std::int32_t from, std::int32_t to) = 0;
  virtual void copy_state(std::int32_t from, std::int32_t to) = 0;

  // What became of PrepareOptions::packs, and waiting for packs in the making (PackProgress).
  virtual PackReport packs() const { return {}; }
  virtual void wait_for_packs(const PackProgress& /*go_on*/) {}

  // For a tuner: what may be chosen, another choice from the next run() on (schedule() goes on describing the first
  // one), and how long each dispatch of a run() took (nullptr: nobody asks; not together with an observer).
  virtual std::vector<Candidates> candidates(Regime /*regime*/) const { return {}; }
  virtual void choose(std::span<const Choice> /*choices*/) {}
  virtual void time_dispatches(std::vector<double>* /*seconds*/) {}
};

// What one plan would need, before anything is allocated.
MemoryUse estimate_memory(const ops::Plan& plan, const PrepareOptions& options);

// Weights are views that must outlive the result. Errors: unsupported_feature and unsupported_type by name,
// out_of_memory with need and have.
Result<std::unique_ptr<Prepared>> prepare(const ops::Plan& plan, const PrepareOptions& options);

}  // namespace adze::backend
