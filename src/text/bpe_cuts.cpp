#include "text/bpe_cuts.hpp"

namespace adze::text {

namespace {
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
}

void WordCuts::create(const TokenizerSpec& spec) {
  joined_to_next_mark_.set(static_cast<unsigned char>(kSpaceMark.back()));  // runs of spaces stay together
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = spec.types.empty() ? TokenType::normal : spec.types[id];
    if (type == TokenType::control || type == TokenType::byte) continue;  // never made by merging
    const std::string_view token = spec.tokens[id];
    if (token.find('\n') != std::string_view::npos && token.find_first_not_of('\n') != std::string_view::npos) {
      at_newlines_ = false;
    }
    for (std::size_t mark = token.find(kSpaceMark, 1); mark != std::string_view::npos;
         mark = token.find(kSpaceMark, mark + 1)) {
      joined_to_next_mark_.set(static_cast<unsigned char>(token[mark - 1]));
    }
  }
}

std::size_t WordCuts::next(std::string_view text, std::size_t at) const {
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    const bool newline = text[i] == '\n';
    if (at_newlines_ && newline != (text[i - 1] == '\n')) return i;
    if (text[i] == kSpaceMark.front() && !joined_to_next_mark_.test(static_cast<unsigned char>(text[i - 1])) &&
        text.substr(i).starts_with(kSpaceMark)) {
      return i;
    }
  }
  return text.size();
}

}  // namespace adze::text
