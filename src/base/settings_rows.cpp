// The rows behind the settings: one line of data per setting. Add a member in settings.hpp and a row here, and the
// flag, the file key, `adze config`, the man page, the completions and docs/settings.md follow.
#include "base/limits.hpp"
#include "base/settings.hpp"

namespace adze {
namespace {

using S = Settings;
using G = SettingGroup;
constexpr double kMaxTokens = static_cast<double>(limits::kMaxContext);

// name, member, group, flags, environment, value, help, least, most, secret
constexpr SettingRow kRows[] = {
    {"threads", &S::threads, G::engine, "-t,--threads", "ADZE_THREADS", "N",
     "Compute threads; 0 takes one per core that may be used", 0, limits::kMaxThreads},
    {"context", &S::context, G::engine, "-c,--ctx", "ADZE_CTX", "TOKENS",
     "Context size; 0 takes the model's own, as far as memory allows", 0, kMaxTokens},
    {"kv_type", &S::kv_type, G::engine, "--kv-type", "ADZE_KV_TYPE", "auto|f32|f16|q8_0",
     "How keys and values are stored; auto is f16, or f32 under --compute f32"},
    {"compute", &S::compute, G::engine, "--compute", "", "auto|f32",
     "auto multiplies quantised weights with int8 activations; f32 dequantises and multiplies in float32"},
    {"cpu", &S::cpu, G::engine, "--cpu", "ADZE_CPU", "NAME",
     "Instruction set of the kernels: auto, or one that adze doctor lists"},
    {"chunk", &S::chunk, G::engine, "--chunk", "", "TOKENS",
     "Prompt tokens computed at once; 0 chooses. Never changes a result", 0, limits::kMaxBatchRows},
    {"concurrent", &S::concurrent, G::engine, "--concurrent", "", "",
     "Run parts of a layer that need nothing of each other side by side, where a model has any. Never changes a "
     "result"},
    {"speculation", &S::speculation, G::engine, "--spec", "ADZE_SPEC", "auto|off|ngram|draft",
     "Who guesses the next tokens, so that one pass can give several: the text itself, or a draft model. Never changes "
     "a result"},
    {"draft_model", &S::draft_model, G::engine, "--draft", "ADZE_DRAFT", "MODEL",
     "A smaller model of the same vocabulary to draft with; auto then means draft"},
    {"profile", &S::profile, G::engine, "--profile", "ADZE_PROFILE", "FILE",
     "What adze tune found to be fastest: auto (where it is kept), off, or a file. Never changes a result"},
    {"mmap", &S::mmap, G::engine, "--no-mmap", "", "", "Read the model into memory instead of mapping the file"},
    {"mlock", &S::mlock, G::engine, "--mlock", "", "", "Keep the model's pages in memory; they are never swapped out"},
    {"rope_scaling", &S::rope_scaling, G::engine, "--rope-scaling", "", "none|linear|yarn|llama3",
     "Override the model's rope scaling"},
    {"rope_base", &S::rope_base, G::engine, "--rope-base", "", "X", "Override the model's rope frequency base", 1,
     1e12},
    {"rope_factor", &S::rope_factor, G::engine, "--rope-factor", "", "X", "Override the factor of the rope scaling", 1,
     1024},
    {"rope_original_context", &S::rope_original_context, G::engine, "--rope-original-context", "", "TOKENS",
     "Override the context size that the model was trained on, for yarn and llama3", 1, kMaxTokens},

    {"logit_bias", &S::logit_bias, G::sampling, "--logit-bias", "", "ID=BIAS",
     "Add BIAS (-100 to 100) to the logit of token ID; may be repeated"},
    {"repetition_penalty", &S::repetition_penalty, G::sampling, "--repetition-penalty", "", "X",
     "Divide the logits of tokens already seen by X; 1 is off", 0.01, 100},
    {"presence_penalty", &S::presence_penalty, G::sampling, "--presence-penalty", "", "X",
     "Subtract X from the logit of every token already seen; 0 is off", -100, 100},
    {"frequency_penalty", &S::frequency_penalty, G::sampling, "--frequency-penalty", "", "X",
     "Subtract X times its count from the logit of every token already seen; 0 is off", -100, 100},
    {"penalty_window", &S::penalty_window, G::sampling, "--penalty-window", "", "TOKENS",
     "How far back the penalties look; 0 is off, -1 is everything", -1, kMaxTokens},
    {"dry_multiplier", &S::dry_multiplier, G::sampling, "--dry-multiplier", "", "X",
     "Strength of the DRY penalty on repeated sequences; 0 is off", 0, 100},
    {"dry_base", &S::dry_base, G::sampling, "--dry-base", "", "X",
     "DRY penalty grows by this factor per token of the repetition", 1, 100},
    {"dry_allowed_length", &S::dry_allowed_length, G::sampling, "--dry-allowed-length", "", "TOKENS",
     "Repetitions up to this length are free", 0, kMaxTokens},
    {"dry_window", &S::dry_window, G::sampling, "--dry-window", "", "TOKENS",
     "How far back DRY looks; -1 is everything", -1, kMaxTokens},
    {"dry_breakers", &S::dry_breakers, G::sampling, "--dry-breaker", "", "TEXT",
     "A repetition never runs across TEXT; may be repeated. Without any: newline, colon, quote and asterisk"},
    {"top_k", &S::top_k, G::sampling, "--top-k", "", "K", "Keep the K likeliest tokens; 0 is off", 0,
     static_cast<double>(limits::kMaxVocabulary)},
    {"typical_p", &S::typical_p, G::sampling, "--typical-p", "", "P",
     "Keep locally typical tokens of total probability P; 1 is off", 0, 1},
    {"top_p", &S::top_p, G::sampling, "--top-p", "", "P", "Keep the likeliest tokens of total probability P; 1 is off",
     0, 1},
    {"min_p", &S::min_p, G::sampling, "--min-p", "", "P",
     "Drop tokens less than P times as likely as the likeliest; 0 is off", 0, 1},
    {"temperature", &S::temperature, G::sampling, "--temperature,--temp", "", "T",
     "Divide the logits by T; 0 takes the likeliest token", 0, 100},
    {"seed", &S::seed, G::sampling, "-s,--seed", "", "N", "Seed of the random numbers; the same seed, the same text", 0,
     9007199254740992.0},

    {"max_tokens", &S::max_tokens, G::ending, "-n,--max-tokens", "", "N", "Stop after N generated tokens", 0,
     9223372036854775807.0},  // as clients send it for "no limit"; the context is one
    {"stop", &S::stop, G::ending, "--stop", "", "TEXT", "Stop before TEXT; may be repeated"},
    {"stop_ids", &S::stop_ids, G::ending, "--stop-id", "", "ID", "Stop at token ID; may be repeated"},
    {"allowed_ids", &S::allowed_ids, G::sampling, "--allow-id", "", "ID",
     "Sample only these token IDs; may be repeated"},
    {"banned_ids", &S::banned_ids, G::sampling, "--ban-id", "", "ID", "Never sample token ID; may be repeated"},
    {"top_logprobs", &S::top_logprobs, G::sampling, "--logprobs", "", "N",
     "With --json: each token's log-probability and the N best ones beside it", 0, limits::kMaxTopLogprobs},
    {"ignore_eos", &S::ignore_eos, G::ending, "--ignore-eos", "", "", "Go on past the model's end-of-text tokens"},

    {"system", &S::system, G::chat, "--system", "", "TEXT", "The system message"},
    {"thinking", &S::thinking, G::chat, "--thinking", "", "auto|on|off",
     "Whether a model that can think aloud does; auto is the template's default"},

    {"hub_endpoint", &S::hub_endpoint, G::hub, "--hub-endpoint", "ADZE_HUB_ENDPOINT HF_ENDPOINT", "URL",
     "Where hf: models come from"},
    {"hub_token", &S::hub_token, G::hub, "--hub-token", "ADZE_HUB_TOKEN HF_TOKEN", "TOKEN", "Access token for the hub",
     -1, 1, true},
    {"models_dir", &S::models_dir, G::hub, "--models-dir", "ADZE_MODELS_DIR", "DIR",
     "Where pulled models live; empty is ~/.local/share/adze/models"},

    {"cache_dir", &S::cache_dir, G::cache, "--cache-dir", "ADZE_CACHE_DIR", "DIR",
     "Where files that Adze makes for itself live; empty is ~/.cache/adze"},
    {"packs", &S::packs, G::cache, "--packs", "ADZE_PACKS", "auto|off",
     "auto keeps each model's weights in the order that kernels read fastest, in files of the cache directory; never "
     "changes a result"},
    {"pack_budget", &S::pack_budget, G::cache, "--pack-budget", "ADZE_PACK_BUDGET", "GB",
     "Gigabytes that these files may have together; the longest unused are removed", 0, 1e6},

    {"quiet", &S::quiet, G::output, "-q,--quiet", "ADZE_QUIET", "", "No progress and no statistics"},
    {"verbose", &S::verbose, G::output, "-v,--verbose", "ADZE_VERBOSE", "",
     "Also print the model, the route, the sampler order and the seed"},
};

}  // namespace

std::span<const SettingRow> setting_rows() { return kRows; }

std::string_view group_title(SettingGroup group) {
  switch (group) {
    case SettingGroup::engine: return "Engine";
    case SettingGroup::sampling: return "Sampling";
    case SettingGroup::ending: return "Where the answer ends";
    case SettingGroup::chat: return "Chat";
    case SettingGroup::hub: return "Models and the hub";
    case SettingGroup::cache: return "Cache";
    case SettingGroup::output: return "Output";
  }
  return "";
}

}  // namespace adze
