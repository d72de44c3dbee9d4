// Adze's C++ API, the one that the command line itself uses. No global state: engines are independent, also of each
// other's threads. Any number of threads may use an Engine; a Conversation and an Answer are driven by one thread at a
// time each. Errors are Results (base/result.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace adze {

// --- loading --------------------------------------------------------------------------------------------------------

enum class ComputeType : std::uint8_t { automatic, f32 };             // f32: dequantise and multiply in float32
enum class KvCacheType : std::uint8_t { automatic, f32, f16, q8_0 };  // automatic: f16 (f32 under ComputeType::f32)

// Who guesses how an answer goes on, so that one forward can give several tokens (GenerateOptions::speculate). The
// answer is the same with any of them. ngram: from the text itself; draft: a smaller model of the same vocabulary.
enum class Speculation : std::uint8_t { off, ngram, draft };

// Replaces what the file says about rotary embedding; unset fields keep it.
struct RopeOverride {
  std::optional<std::string> scaling{};  // "none", "linear", "yarn", "llama3"
  std::optional<float> frequency_base{};
  std::optional<float> scaling_factor{};
  std::optional<std::int64_t> original_context{};
};

struct LoadOptions {
  int threads = 0;           // 0: one per core that the process may use
  std::int64_t context = 0;  // positions; 0: the model's own, at most what fits in memory
  ComputeType compute = ComputeType::automatic;
  KvCacheType kv_type = KvCacheType::automatic;
  std::string kernel_set{};  // instruction set of the kernels ("avx2"); empty: the best that the machine runs
  bool use_mmap = true;
  bool lock_memory = false;
  int chunk = 0;      // prompt rows per forward; 0: chosen. Never changes a result.
  int sequences = 0;  // texts with a recurrent state that are answered side by side; 0: 2. Others wait their turn
  // Where profiles of tune_model() lie; empty: none is looked for. Or the file of one: it must be there, and is not
  // used where it is for another machine, build or model. Results are the same.
  std::filesystem::path profile_directory{};
  std::filesystem::path profile_file{};
  // Parts of a layer that need nothing of each other run side by side. Results are the same.
  bool concurrent = false;
  Speculation speculation = Speculation::ngram;
  std::filesystem::path draft_model{};  // for Speculation::draft
  RopeOverride rope{};
  std::optional<std::string> chat_template{};  // Jinja source instead of the model's own
  // Where weights in the order that kernels read fastest are kept between starts, and for all models together; empty:
  // nowhere, and weights are read as the file has them. Results are the same. Not used without use_mmap, or with
  // lock_memory.
  std::filesystem::path pack_directory{};
  std::uint64_t pack_budget_bytes = 20'000'000'000;  // of the whole directory: the longest unused goes
  // What strftime_now says in chat templates, in Unix seconds; unset: the time at which a conversation starts.
  std::optional<std::int64_t> template_time{};
};

// --- sampling -------------------------------------------------------------------------------------------------------

struct SamplingOptions {
  float temperature = 0.8f;  // 0: greedy, ties to the lowest id
  int top_k = 40;            // 0: off
  float top_p = 0.95f;       // 1: off; 0: greedy
  float min_p = 0.05f;       // 0: off
  float typical_p = 1.0f;    // 1: off
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int penalty_window = 64;      // last tokens that the penalties see; -1: the whole context, 0: off
  float dry_multiplier = 0.0f;  // 0: off
  float dry_base = 1.75f;
  int dry_allowed_length = 2;
  int dry_window = -1;
  std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"};
  std::optional<std::uint64_t> seed;  // unset: one is drawn, and reported in the result
  std::vector<std::pair<std::int32_t, float>> logit_bias;
};

// The samplers in force, in the order in which they run: "top-k 40 -> temperature 0.8 -> draw (seed 7)".
std::string describe_sampling(const SamplingOptions& options);

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = -1;  // -1: until the context is full
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_ids;
  bool ignore_eos = false;   // the model's end-of-generation tokens are never sampled; stop_ids still end the answer
  bool hash_logits = false;  // fill Generation::logits_hash (costs a pass over the logits)
  // Of every token the log-probability, and of so many of the best ones beside it (at most 20); -1: of none. They are
  // of the model's own distribution, before any sampler.
  int top_logprobs = -1;
  std::vector<std::int32_t> allowed_ids;  // only these are sampled; empty: all
  std::vector<std::int32_t> banned_ids;   // never sampled
  // Asked before each token with those of the answer so far: clears the bits (32 to a word, token i at bit i % 32) of
  // tokens that may not follow. Called on whichever thread makes the step; for a drafted token as well. It must
  // not use the engine, as no callback may.
  std::function<void(std::span<const std::int32_t> answer, std::span<std::uint32_t> allowed)> token_mask;
  bool speculate = true;  // drafts may be verified, if the engine makes any; the answer is the same
  // Takes over what is computed of the prompt's beginning, and leaves what is computed for later requests. Only
  // requests of the same salt share.
  bool reuse_prefix = true;
  std::string cache_salt;
  // Asked between steps, also while the prompt is computed: true ends the answer as `cancelled`. Called by the thread
  // that waits for the answer.
  std::function<bool()> cancelled;
};

enum class FinishReason : std::uint8_t { stop, length, cancelled, error };
std::string_view finish_reason_name(FinishReason reason);

struct Statistics {
  std::int64_t prompt_tokens = 0;     // computed now
  std::int64_t reused_tokens = 0;     // of the prompt: found in the KV cache, not computed
  std::string not_reused;             // why not more: "none", "new_prefix", "evicted", "other_settings", "no_state"
  std::int64_t generated_tokens = 0;  // sampled, the token that ended the answer included
  std::int64_t drafted_tokens = 0, accepted_tokens = 0;  // of drafts that were verified
  std::int64_t forwards = 0;                             // that gave the request at least one token
  std::int64_t preemptions = 0, recomputed_tokens = 0;   // when memory was short
  double prompt_seconds = 0;                             // to compute the prompt and sample the first token
  double generate_seconds = 0;                           // for the others
  double first_token_seconds = 0;                        // from the call to the first token

  // Tokens per second; 0 where nothing was computed. The first token's time belongs to the prompt.
  double prompt_rate() const { return prompt_seconds > 0 ? static_cast<double>(prompt_tokens) / prompt_seconds : 0; }
  double generate_rate() const {
    return generate_seconds > 0 ? static_cast<double>(generated_tokens - 1) / generate_seconds : 0;
  }
};

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;  // natural
};

struct TokenLogprobs {
  TokenLogprob drawn;
  std::vector<TokenLogprob> top;  // best first
};

struct Generation {
  std::vector<std::int32_t> ids;  // without the end-of-generation token or stop id; tokens of a stop string are in it
  std::string text;               // without the stop string; what on_text was given, joined
  FinishReason finish = FinishReason::stop;
  std::string stop_match;  // the stop string that ended it, if one did
  std::uint64_t seed = 0;
  Statistics statistics;
  std::string logits_hash;              // 32 hex digits: XXH3 over the XXH3 of every sampled row, in order
  std::vector<TokenLogprobs> logprobs;  // of `ids`, where they were asked for
};

// What one forward reads and multiplies at the least: what a rate is compared with to see how much of the machine's
// limit it is. Attention's own products are left out.
struct ForwardWork {
  double weight_bytes = 0;   // as the file stores them
  double cache_bytes = 0;    // keys, values, recurrent states
  double byte_products = 0;  // multiply-adds of int8 by int8
  double float_products = 0;
};

// Called with each piece of text as it becomes certain (whole UTF-8 characters, nothing a stop string could still
// swallow). Return false to cancel.
using OnText = std::function<bool(std::string_view piece)>;

// --- chat -----------------------------------------------------------------------------------------------------------

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

enum class Thinking : std::uint8_t { model_default, on, off };

struct ModelInfo {
  std::string name;          // general.name, or the file's
  std::string architecture;  // "llama"
  std::int64_t parameters = 0;
  std::int64_t file_bytes = 0;
  std::int64_t context = 0;  // in force
  std::int64_t trained_context = 0;
  int layers = 0;
  int vocabulary = 0;
  bool has_chat_template = false;  // its own, or one given at load
  std::string numeric_class;
  std::string route_digest;
  std::uint64_t kv_bytes_per_token = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::size_t unused_tensors = 0;
  std::vector<std::string> notes;  // one line each: what a user should know about this model
  std::string profile;             // one line: the profile that is used, or why there is none
  std::string chunk;               // one line: the rows of a prompt's forwards, and who says so
  std::string speculation;         // one line: who drafts, and whose costs decide
};

enum class PackState : std::uint8_t {
  off,      // LoadOptions::pack_directory is empty, or nothing of the model can be packed
  packing,  // in the background; answers come from the weights as the file has them
  ready,    // the next step reads the packed weights
  failed,   // as off, for the reason given
};

struct PackInfo {
  PackState state = PackState::off;
  bool found = false;  // ready since the start
  std::uint64_t done_bytes = 0, total_bytes = 0;
  std::filesystem::path path;
  std::optional<Error> error;
};

// --- requests -------------------------------------------------------------------------------------------------------

struct Request {
  std::vector<std::int32_t> prompt;
  GenerateOptions options;
  int priority = 0;  // higher ones are started and kept first
  // From now on; after that the request fails (timed_out). Not set: no limit.
  std::optional<double> start_within_seconds, finish_within_seconds;
};

// A piece of an answer, in order. Concatenated they are what Generation has.
struct AnswerPiece {
  std::string text;                     // whole characters, nothing that a stop string could still swallow
  std::vector<std::int32_t> ids;        // tokens that were added; the text of some may come later
  std::vector<TokenLogprobs> logprobs;  // of ids, where they were asked for
};

struct EngineImpl;
struct ConversationImpl;
struct AnswerImpl;

// A request that was submitted. Its functions are called by one thread at a time, any one; answers of one engine may be
// read by as many threads. The thread that waits makes the engine's steps, for all requests, unless another one does
// already. An answer may outlive the engine object. Destroying one that has not ended cancels it,
// and waits for a step that is being made: its callbacks are not called afterwards.
class Answer {
 public:
  Answer(Answer&&) noexcept;
  Answer& operator=(Answer&&) noexcept;
  ~Answer();

  std::uint64_t id() const;
  // Waits for the next piece. Nothing: the answer has ended.
  std::optional<AnswerPiece> next();
  // Waits for the end. Errors: non_finite, out_of_memory, timed_out, and invalid_argument when no token is allowed.
  Result<Generation> wait();
  // Ends it (FinishReason::cancelled) unless it has ended; any thread.
  void cancel();

 private:
  friend struct EngineImpl;
  explicit Answer(std::unique_ptr<AnswerImpl> impl);
  std::unique_ptr<AnswerImpl> impl_;
};

// Of the engine since it was loaded, and now.
struct EngineStatistics {
  std::int64_t steps = 0;
  std::size_t running = 0, waiting = 0;
  std::int64_t pages_in_use = 0, pages = 0;  // of KV: held by running requests, of all
  std::int64_t pages_kept = 0;               // held for requests to come
  std::int64_t slots_in_use = 0, slots = 0;  // recurrent states
  std::int64_t prefix_lookups = 0, prefix_hits = 0, reused_tokens = 0, evicted_pages = 0;
  std::string route;  // digest over every step that was planned: the same calls in the same order give the same
};

// A multi-turn chat. A turn computes only what the turns before have not, as long as that is kept.
class Conversation {
 public:
  Conversation(Conversation&&) noexcept;
  Conversation& operator=(Conversation&&) noexcept;
  ~Conversation();

  const std::vector<ChatMessage>& messages() const;  // without the system text
  const std::string& system() const;
  void set_messages(std::vector<ChatMessage> messages);  // e.g. loaded ones; the common prefix of the KV is kept
  void set_system(std::string text);                     // empty: none
  void set_thinking(Thinking thinking);
  void clear();  // messages and KV; the system text stays

  // Appends the user's message, answers, appends the answer (what there is of it, when cancelled). On an error the
  // user's message is taken back and the conversation is as before. Errors: context_full, template_error, non_finite,
  // invalid_argument and limit_exceeded (the options, by name).
  Result<Generation> say(std::string user, const GenerateOptions& options, const OnText& on_text);
  std::int64_t tokens_in_context() const;

 private:
  friend class Engine;
  explicit Conversation(std::unique_ptr<ConversationImpl> impl);
  std::unique_ptr<ConversationImpl> impl_;
};

class Engine {
 public:
  // Errors: not_found, not_a_model, corrupt_file, unsupported_*, out_of_memory (need, have, largest context that fits);
  // invalid_argument for a draft model of another vocabulary.
  static Result<Engine> load(const std::filesystem::path& model, const LoadOptions& options);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  const ModelInfo& info() const;
  GenerateOptions default_options() const;  // the model's generation defaults over Adze's own
  std::string plan_text() const;            // for people
  std::string plan_json() const;            // for programs

  PackInfo packs() const;
  // Packs on this thread as well, until it is done or `go_on` (asked about twenty times a second) says no.
  void finish_packs(const std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>& go_on);

  // Errors: limit_exceeded (a text beyond what a tokenizer reads at once).
  Result<std::vector<std::int32_t>> tokenize(std::string_view text, bool add_bos, bool parse_special) const;
  std::string detokenize(std::span<const std::int32_t> ids, bool show_special) const;
  bool adds_bos() const;

  // submit() and wait(), with the pieces of text as they come. Raw completion of ids; nothing is added to them. Errors:
  // context_full (before any work), non_finite, invalid_argument and limit_exceeded (the options, by name).
  Result<Generation> generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                              const OnText& on_text);
  // Any thread. Each answer is what it would be alone, bit for bit, whatever else runs. Errors: context_full (before
  // any work), invalid_argument and limit_exceeded (the options, by name; too many requests wait).
  Result<Answer> submit(Request request);
  // Several answers to one prompt, which is computed once; the seeds are the first one's and the numbers after it.
  Result<std::vector<Answer>> submit_copies(const Request& request, int copies);
  EngineStatistics statistics() const;

  // Several texts at once: one forward serves them all, which reads the weights once. Each answer is what generate()
  // alone would give, bit for bit. Those that do not fit side by side into the memory wait or are computed again. The
  // statistics' times are those of all together, and its prompts' end when the last one's first token is there.
  Result<std::vector<Generation>> generate_together(std::span<const std::vector<std::int32_t>> prompts,
                                                    const GenerateOptions& options);
  // Of one forward of `rows` rows, shared evenly by `sequences` texts of `depth` tokens each, with `wanted` rows'
  // logits.
  ForwardWork forward_work(std::int64_t rows, std::int64_t wanted, std::int64_t sequences, std::int64_t depth) const;
  // A chat as the model's template writes it, ready for an answer; user text never becomes special tokens. An empty
  // system text: none. Errors: unsupported_feature (no template), template_error.
  Result<std::vector<std::int32_t>> chat_prompt(std::span<const ChatMessage> messages, std::string_view system,
                                                Thinking thinking) const;
  // Errors: unsupported_feature when the model has no chat template. They may outlive
  // the engine.
  Result<Conversation> start_conversation();

  // Calls back with the logits [vocabulary] of each position that `wanted` asks for, in order. Positions are processed
  // in chunks; a fresh KV is used. Errors: context_full, non_finite, invalid_argument.
  using OnLogits = std::function<void(std::int64_t position, std::span<const float> logits)>;
  Status evaluate(std::span<const std::int32_t> ids, const std::function<bool(std::int64_t position)>& wanted,
                  const OnLogits& on_logits);
  // The residual stream and sub-block outputs of every layer for one evaluation of `ids`: "embed", and for each layer I
  // "layer.I.self_attn" and "layer.I.mlp" (what the sub-block added, as a difference of the stream) and "layer.I.out".
  struct LayerDump {
    std::string name;
    std::int64_t rows = 0, columns = 0;
    std::vector<float> values;
  };
  Result<std::vector<LayerDump>> dump_layers(std::span<const std::int32_t> ids);
  // How large the inputs of the model's matrices are, column by column: what an importance matrix is made of. Each
  // window is evaluated from an empty context; `go_on` is asked after each with the number done, and false ends the
  // measurement. Errors: those of an evaluation, and non_finite, naming the first matrix whose input is not finite.
  struct InputSquares {
    std::string weight;
    std::vector<float> sums;    // [matrices, columns]: of the inputs' squares; one matrix, or one for each expert
    std::vector<float> counts;  // [matrices]: inputs that were summed
  };
  Result<std::vector<InputSquares>> measure_inputs(std::span<const std::vector<std::int32_t>> windows,
                                                   const std::function<bool(std::size_t done)>& go_on);

 private:
  friend struct EngineImpl;
  explicit Engine(std::unique_ptr<EngineImpl> impl);
  std::unique_ptr<EngineImpl> impl_;
};

// --- measuring what is fastest --------------------------------------------------------------------------------------

struct TuneOptions {
  double seconds = 45.0;  // to take, about
  // Before the measuring, while packed weights are in the making; false ends it, too.
  std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)> packing{};
  std::function<bool(double share_done)> progress{};  // false ends it (cancelled)
};

struct TuneReport {
  std::filesystem::path path;  // of the profile
  std::string text;            // for people
  std::string json;            // for programs
};

// Measures on this machine which kernels and how many threads are fastest for the model, and what a forward costs by
// its rows, and writes that as a profile: to options.profile_file, or into options.profile_directory, one of which must
// be there. Errors: those of Engine::load and of measuring and writing; cancelled.
Result<TuneReport> tune_model(const std::filesystem::path& model, const LoadOptions& options, const TuneOptions& how);

}  // namespace adze
