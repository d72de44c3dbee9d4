#include "text/detokenizer.hpp"

#include <string_view>
#include <utility>

#include "text/unicode.hpp"

namespace adze::text {

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options, bool continues)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      continues_(continues),
      strip_space_(!continues && tokenizer_->strips_leading_space()) {}

std::string StreamDecoder::take(bool at_end) {
  std::string out;
  std::string_view rest = pending_;
  // A broken run of byte tokens shows one U+FFFD per byte, as decode does; elsewhere one per maximal invalid part.
  const bool per_byte = tokenizer_->kind() != TokenizerKind::byte_bpe;
  while (!rest.empty()) {
    const Utf8Part part = first_utf8_part(rest);
    if (part.kind == Utf8Kind::incomplete && !at_end) break;
    if (part.kind == Utf8Kind::character) {
      out += rest.substr(0, part.bytes);
    } else {
      for (std::uint32_t i = 0; i < (per_byte ? part.bytes : 1); ++i) out += kReplacementUtf8;
    }
    rest.remove_prefix(part.bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  if (strip_space_ && !out.empty()) {
    if (out.starts_with(' ')) out.erase(0, 1);
    strip_space_ = false;
  }
  return out;
}

std::string StreamDecoder::push(TokenId id) {
  tokenizer_->append_bytes(id, pending_, options_);
  return take(false);
}

std::string StreamDecoder::flush() {
  std::string out = take(true);
  strip_space_ = !continues_ && tokenizer_->strips_leading_space();
  return out;
}

}  // namespace adze::text
