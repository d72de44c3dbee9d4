// Hugging Face's tokenizer.json, read into a TokenizerSpec: its own vocabulary, merges, added tokens, pre-tokenizer
// patterns, normaliser and decoder.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "text/tokenizer_spec.hpp"

namespace adze::text {

struct TokenizerJsonOptions {
  // Whether a declared NFC normaliser is obeyed. Off by default: a GGUF of the same model cannot say that it wants NFC,
  // the two must give the same ids, and what a user typed should survive encoding and decoding unchanged.
  bool apply_nfc = false;
};

// `text` is copied into the spec's storage only as far as its strings are needed.
// Errors: not_a_model (not JSON, or no tokenizer), corrupt_file (a field of the wrong kind, an id out of range, two
// tokens with one id; names the field), unsupported_feature (a component type that Adze does not have, by name).
Result<TokenizerSpec> spec_from_tokenizer_json(std::string_view text, TokenizerJsonOptions options = {});

// Fills bos, eos, unk, pad, add_bos and add_eos from tokenizer_config.json, which may name them; unknown members are
// left alone. Errors: corrupt_file.
Status apply_tokenizer_config(std::string_view text, TokenizerSpec& spec);
// The chat template in it: its chat_template, or of several the one named "default". Errors: corrupt_file.
Result<std::optional<std::string>> chat_template_of_tokenizer_config(std::string_view text);

}  // namespace adze::text
