// Every limit of Adze, in units, each with the error it raises. A limit bounds what input can make the program do;
// a test reaches each of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adze::limits {

// --- GGUF (format/gguf): corrupt_file or limit_exceeded -------------------------------------------------------------
inline constexpr std::uint64_t kGgufMaxMetadataEntries = 1u << 16;
inline constexpr std::uint64_t kGgufMaxTensors = 1u << 18;
inline constexpr std::uint64_t kGgufMaxStringBytes = 64u << 20;  // one string (a chat template, a token)
inline constexpr std::uint64_t kGgufMaxKeyBytes = 1u << 16;
inline constexpr int kGgufMaxDims = 4;
inline constexpr std::uint64_t kGgufMaxSplits = 4096;

// --- safetensors (format/safetensors): limit_exceeded ----------------------------------------------------------------
inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr int kSafetensorsMaxDepth = 128;                          // of values inside fields that nobody knows
inline constexpr std::uint64_t kSafetensorsMaxIndexBytes = 32u << 20;     // the largest known one has 9 MB
inline constexpr std::size_t kSafetensorsMaxShards = 4096;

// --- format/weight_store: vectors beyond it stay in the map ---------------------------------------------------------
inline constexpr std::size_t kMaxHeldTensorBytes = 64u << 20;

// --- the JSON files of a model folder (format/json, model/huggingface): corrupt_file, limit_exceeded -----------------
inline constexpr int kJsonMaxDepth = 64;
inline constexpr std::uint64_t kModelConfigMaxBytes = 1u << 20;  // config.json, generation_config.json

// --- model-manifest.json (model/manifest), read or written: limit_exceeded ------------------------------------------
inline constexpr std::uint64_t kMaxManifestBytes = 100'000'000;  // it lists what the headers of the files list

// --- model (model/): corrupt_file, naming the key
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxHidden = 1 << 17;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxHeadSize = 1024;
inline constexpr std::int64_t kMaxConvolution = 32;  // positions that a recurrent layer's convolution spans
inline constexpr std::int64_t kMaxFeedForward = 1 << 20;
inline constexpr std::int64_t kMaxExperts = 4096;
inline constexpr std::int64_t kMaxExpertsUsed = 64;  // by one token
inline constexpr std::int64_t kMaxVocabulary = 1 << 22;
inline constexpr std::int64_t kMaxContext = 1 << 24;
inline constexpr double kMaxRopeBase = 1e12;
inline constexpr double kMaxRopeFactor = 1e4;

// --- execution (backend/cpu): invalid_argument
inline constexpr int kMaxThreads = 512;
inline constexpr int kMaxBatchRows = 4096;
inline constexpr int kMaxDraft = 16;        // rows of a batch that may turn out not to belong to the text
inline constexpr int kMaxSequences = 1024;  // recurrent states that are kept

// --- the prefix index (cache/): nothing is refused, less is reused or explained --------------------------------------
inline constexpr std::size_t kMaxEvictedKeys = 1u << 14;    // remembered, to tell "evicted" from "new"
inline constexpr std::size_t kMaxPagelessNodes = 1u << 16;  // of a model without full attention; 300 bytes each
inline constexpr int kMaxSiblingsCompared = 64;             // pages that differ behind one beginning, per lookup
inline constexpr int kMaxRootsCompared = 16;                // other settings, per lookup that finds nothing

// --- pack files (backend/pack_file): limit_exceeded where one is written, corrupt_file where one is read ------------
inline constexpr std::uint64_t kPackMaxHeaderBytes = 64u << 20;
inline constexpr std::uint64_t kPackMaxTextBytes = 1u << 16;  // a name or a path
inline constexpr std::uint64_t kPackMaxEntries = 1u << 18;
inline constexpr std::uint64_t kPackMaxSources = 4096;
inline constexpr std::uint64_t kPackMaxGroupBytes = 256u << 20;  // one stands in memory while it is packed
inline constexpr std::uint64_t kPackMaxFileBytes = std::uint64_t{1} << 44;
inline constexpr std::uint64_t kPackKeepFreeBytes = 1u << 30;  // of the disk: no pack is written into the last of it

// --- profiles (tune/profile): corrupt_file
inline constexpr std::uint64_t kProfileMaxBytes = 4u << 20;
inline constexpr std::size_t kMaxProfileEntries = 10'000;  // of each list

// --- templates (text/jinja): template_error
inline constexpr std::uint64_t kTemplateMaxSourceBytes = 1u << 20;
inline constexpr std::size_t kTemplateMaxTokens = 100'000;
inline constexpr std::uint64_t kTemplateMaxOutputBytes = 16u << 20;
inline constexpr std::uint64_t kTemplateMaxSteps = 5'000'000;
inline constexpr int kTemplateMaxDepth = 100;             // macro calls, nested statements, nested parentheses
inline constexpr int kTemplateMaxExpressionHeight = 500;  // operators one above the other
inline constexpr int kTemplateMaxArguments = 10'000;      // of one call, through *arguments
inline constexpr int kTemplateMaxInputDepth = 200;        // nesting of the JSON that is rendered
inline constexpr int kTemplateMaxRecursion = 2000;        // all levels together: syntax, calls, nested values
inline constexpr std::uint64_t kTemplateMaxMemoryBytes = 48u << 20;
inline constexpr std::uint64_t kTemplateMaxInputBytes = 64u << 20;  // a file for `adze template`
inline constexpr std::int64_t kTemplateMaxRange = 100'000;          // range(): the number of Jinja's own sandbox
inline constexpr std::int64_t kTemplateMaxFieldWidth = 1 << 20;     // of one formatted value

// --- requests (sample/, engine/): invalid_argument
// --------------------------------------------------------------------
inline constexpr std::size_t kMaxLogitBiases = 1u << 16;
inline constexpr std::size_t kMaxStops = 64;
inline constexpr std::size_t kMaxStopBytes = 4096;  // one stop string
inline constexpr std::size_t kMaxStopIds = 1024;
inline constexpr std::size_t kMaxDryBreakers = 64;
inline constexpr int kMaxTopLogprobs = 20;  // of one position

// --- tokenizers (text/tokenizer, text/pattern): limit_exceeded ------------------------------------------------------
inline constexpr std::uint64_t kTokenizerMaxTextBytes = 256u << 20;  // of one encode
inline constexpr std::uint64_t kTokenizerMaxJsonBytes = 256u << 20;  // a tokenizer.json
inline constexpr std::uint64_t kTokenizerMaxMerges = 1u << 20;       // the largest known vocabulary has 515,000
inline constexpr std::size_t kTokenizerMaxProbes = 4096;             // of one insertion: a vocabulary made to collide
inline constexpr std::size_t kPatternMaxStages = 32;
inline constexpr std::size_t kPatternMaxInstructions = 8192;
inline constexpr int kPatternMaxDepth = 64;
inline constexpr std::uint32_t kPatternMaxRepeat = 1000;  // {n,m}
inline constexpr std::uint64_t kPatternStepsPerByte = 256;

// --- engine (engine/) ------------------------------------------------------------------------------------------------
inline constexpr std::int64_t kMaxLogitBytesAtOnce = 64 << 20;  // all positions of a long text come in several calls

// --- files that are read whole (cli/, base/settings): limit_exceeded -------------------------------------------------
inline constexpr std::uint64_t kMaxConfigBytes = 1u << 20;
inline constexpr std::uint64_t kMaxPromptBytes = 256u << 20;  // a prompt, from a file or from stdin
inline constexpr std::uint64_t kMaxChatBytes = 64u << 20;     // a saved chat
inline constexpr std::uint64_t kMaxContractBytes = 16u << 20;
inline constexpr std::size_t kMaxContractRequests = 1024;
inline constexpr std::size_t kMaxContractIdBytes = 64;
inline constexpr std::uint64_t kMaxCorpusBytes = 1u << 30;  // the text of `adze perplexity`

// --- numbers on the command line (cli/): invalid_argument ------------------------------------------------------------
inline constexpr int kMaxCommandCount = 1 << 24;  // rounds, tokens and windows that a measurement is asked for

// --- hub (hub/): network, invalid_argument ---------------------------------------------------------------------------
inline constexpr std::size_t kMaxAddressBytes = 8192;
inline constexpr long kMaxRedirects = 10;
inline constexpr int kMaxDownloadAttempts = 1000;             // of one download, however much each gains
inline constexpr std::uint64_t kMaxHubNoteBytes = 64u << 10;  // the small files beside a download and in a hub's cache
inline constexpr int kMaxModelFolderDepth = 6;  // below the models folder: ORG/REPO/FOLDER/FILE and some more
inline constexpr std::size_t kMaxToolOutputBytes = 64u << 10;  // kept of what another program says

}  // namespace adze::limits
