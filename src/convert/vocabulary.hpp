// A tokenizer in the words of GGUF (tokenizer.ggml.*), as llama.cpp's converter writes them: the way back is
// model/vocabulary.hpp, and a tokenizer that went there and back gives the same ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/gguf_writer.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::convert {

// Writes `size` tokens, the rows of the model's embedding: ids without a token become unused ones. `architecture` is
// general.architecture, because llama.cpp knows the tokenizer of Gemma 4 by a name of its own. Gives the tokens that
// end an answer and that GGUF has no key left for. Errors: unsupported_feature (a pre-tokenizer that GGUF has no name
// for, a step that it cannot say, merges that scores would not give), corrupt_file (more tokens than `size`).
Result<std::vector<std::string>> add_vocabulary(const text::TokenizerSpec& spec, std::int64_t size,
                                                std::string_view architecture, format::GgufWriter& out);

}  // namespace adze::convert
