// Models of random weights: any family at any size, made from its configuration alone, for benchmarks and for tests of
// what does not depend on sense. Their vocabulary merges letters as a trained one does.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "convert/planned_file.hpp"
#include "format/gguf_writer.hpp"

namespace adze::convert {

// The file of the model that `config` (the text of a config.json) describes; `name` is for people. Two files of one
// seed are the same to the byte. Errors: those of import_config and of the family's config; invalid_argument for a
// vocabulary too small for single bytes.
Result<PlannedFile> plan_synthesis(std::string_view config, std::string_view name, std::uint64_t seed,
                                   const WriteOptions& options);

// tokenizer.ggml.*: byte-level BPE of `size` tokens whose merges make runs of two, three and four letters, the common
// ones first, and a plain chat template. Errors: invalid_argument.
Status add_synthetic_vocabulary(std::int64_t size, format::GgufWriter& out);

}  // namespace adze::convert
