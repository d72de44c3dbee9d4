// The vocabulary of a GGUF file: its tokenizer.ggml.* keys, checked and turned into the neutral words of room text.
#pragma once

#include <memory>

#include "base/result.hpp"
#include "format/metadata.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::model {

// The spec's strings are views into the bytes behind `metadata`; `storage` must keep those alive (the GgufFile or a
// store that holds it). Errors: corrupt_file (the file has no vocabulary, a key of the wrong kind, arrays of
// different lengths, an id beyond the vocabulary; names the key), unsupported_feature (a kind of tokenizer that Adze
// does not have, by name), limit_exceeded.
Result<text::TokenizerSpec> tokenizer_spec_from_gguf(const format::Metadata& metadata,
                                                     std::shared_ptr<const void> storage);

// The same, ready to run. Errors: also those of Tokenizer::create.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const format::Metadata& metadata,
                                                              std::shared_ptr<const void> storage);

}  // namespace adze::model
