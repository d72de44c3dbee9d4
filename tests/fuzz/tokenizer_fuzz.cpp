// A tokenizer.json and a text: up to the first NUL byte the one, then the other. What loads must encode, and what it
// encodes must decode, without a crash and in bounded time.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "text/detokenizer.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_json.hpp"
#include "text/unicode.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace adze::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t border = input.find('\0');
  auto spec = spec_from_tokenizer_json(input.substr(0, border), {.apply_nfc = true});
  if (!spec) return 0;
  auto tokenizer = Tokenizer::create(std::move(*spec));
  if (!tokenizer) return 0;
  const std::string_view text = border == std::string_view::npos ? input : input.substr(border + 1);
  const std::vector<Segment> segments = {{std::string(text.substr(0, text.size() / 2)), true},
                                         {std::string(text.substr(text.size() / 2)), false}};
  for (const auto& ids : {(*tokenizer)->encode(text), (*tokenizer)->encode(text, {.parse_special = true}),
                          (*tokenizer)->encode(segments, {.add_bos = true, .add_eos = true})}) {
    if (!ids) continue;
    ADZE_CHECK(is_valid_utf8((*tokenizer)->decode(*ids, {.show_special = true})));
    StreamDecoder stream(*tokenizer);
    for (const TokenId id : *ids) ADZE_CHECK(is_valid_utf8(stream.push(id)));
    ADZE_CHECK(is_valid_utf8(stream.flush()));
  }
  return 0;
}
