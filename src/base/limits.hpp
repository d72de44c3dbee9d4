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

// --- model (model/): corrupt_file, naming the key
// ---------------------------------------------------------------------
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxHidden = 1 << 17;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxHeadSize = 1024;
inline constexpr std::int64_t kMaxFeedForward = 1 << 20;
inline constexpr std::int64_t kMaxVocabulary = 1 << 22;
inline constexpr std::int64_t kMaxContext = 1 << 24;

// --- execution (backend/cpu): invalid_argument
// ------------------------------------------------------------------------
inline constexpr int kMaxThreads = 512;
inline constexpr int kMaxBatchRows = 4096;

// --- templates (text/jinja): template_error
// ----------------------------------------------------------------------------
inline constexpr std::uint64_t kTemplateMaxSourceBytes = 1u << 20;
inline constexpr std::uint64_t kTemplateMaxOutputBytes = 16u << 20;
inline constexpr std::uint64_t kTemplateMaxSteps = 5'000'000;
inline constexpr int kTemplateMaxDepth = 100;
inline constexpr std::uint64_t kTemplateMaxMemoryBytes = 48u << 20;

}  // namespace adze::limits
