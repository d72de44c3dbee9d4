#include "text/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "text/bpe.hpp"
#include "text/pretokenizer.hpp"
#include "text/spm.hpp"
#include "text/tokenizer_added.hpp"
#include "text/tokenizer_index.hpp"
#include "text/unicode.hpp"
#include "text/unigram.hpp"

namespace adze::text {

namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

// Tokens that end a turn by their name, whatever the file says of them: the eos of many files is another one.
constexpr std::array<std::string_view, 13> kTurnEnds = {
    "<|eot_id|>", "<|im_end|>", "<|end|>",         "<end_of_turn>", "<turn|>",  "<|endoftext|>",         "<|eom_id|>",
    "<EOT>",      "<|EOT|>",    "<|end_of_text|>", "<|return|>",    "<|call|>", "<｜end▁of▁sentence｜>",
};

std::int32_t byte_value(std::string_view token) {  // "<0x0A>" -> 10, else -1
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Status check_spec(const TokenizerSpec& spec) {
  const std::size_t n = spec.tokens.size();
  const auto bad = [](std::string message) {
    return fail(ErrorCode::corrupt_file, std::move(message), "get the file again, or convert the model again");
  };
  if (n == 0) return bad("the vocabulary has no tokens");
  if (n > static_cast<std::size_t>(limits::kMaxVocabulary)) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("the vocabulary has {} tokens, more than {}", n, limits::kMaxVocabulary));
  }
  if (!spec.types.empty() && spec.types.size() != n) {
    return bad(fmt::format("the vocabulary has {} tokens but {} token types", n, spec.types.size()));
  }
  if (!spec.scores.empty() && spec.scores.size() != n) {
    return bad(fmt::format("the vocabulary has {} tokens but {} scores", n, spec.scores.size()));
  }
  const bool scored = spec.kind == TokenizerKind::sentencepiece_bpe || spec.kind == TokenizerKind::unigram;
  if (scored && spec.scores.empty()) return bad("the vocabulary has no scores, which its kind of tokenizer needs");
  if (scored && !std::all_of(spec.scores.begin(), spec.scores.end(), [](float s) { return std::isfinite(s); })) {
    return bad("a score of the vocabulary is not a finite number");
  }
  const auto in_range = [n](TokenId id) { return id >= 0 && static_cast<std::size_t>(id) < n; };
  const std::pair<std::string_view, std::optional<TokenId>> named[] = {
      {"bos", spec.bos}, {"eos", spec.eos}, {"eot", spec.eot},  {"unknown", spec.unk},
      {"pad", spec.pad}, {"sep", spec.sep}, {"mask", spec.mask}};
  for (const auto& [name, id] : named) {
    if (id && !in_range(*id))
      return bad(fmt::format("the {} token is {}, but the vocabulary has {} tokens", name, *id, n));
  }
  for (const TokenId id : spec.end_of_generation) {
    if (!in_range(id))
      return bad(fmt::format("an end-of-generation token is {}, but the vocabulary has {} tokens", id, n));
  }
  return {};
}

}  // namespace

struct Tokenizer::Impl {
  TokenizerSpec spec;
  TokenIndex index;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  ByteBpe byte_bpe;
  SentencePieceBpe sentencepiece;
  CharacterBpe character_bpe;
  Unigram unigram;
  std::vector<TokenId> end_of_generation;  // sorted
  Digest fingerprint;

  Status prepare();
  void find_ends();
  void take_fingerprint();

  void normalise(std::string_view text, bool first, std::string& out) const;
  bool normalises_nothing() const {
    return spec.kind == TokenizerKind::byte_bpe && !spec.nfc && !spec.add_space_prefix;
  }
  Result<std::vector<TokenId>> encode_sections(std::span<const Section> sections, std::size_t bytes,
                                               EncodeOptions options) const;
  void encode_piece(std::string_view piece, std::vector<TokenId>& out, MergeScratch& scratch) const;
  void add_ends(std::vector<TokenId>& ids, EncodeOptions options) const;

  std::string_view text_of(TokenId id) const { return spec.tokens[static_cast<std::size_t>(id)]; }
  TokenType type_of(TokenId id) const {
    return spec.types.empty() ? TokenType::normal : spec.types[static_cast<std::size_t>(id)];
  }
  // The byte that a <0xXX> token stands for; -1 for other tokens.
  std::int32_t byte_of(TokenId id) const {
    if (spec.kind == TokenizerKind::byte_bpe) return -1;
    const TokenType type = type_of(id);
    if (type != TokenType::byte && !(spec.types.empty() && spec.byte_fallback)) return -1;
    return byte_value(text_of(id));
  }
};

Status Tokenizer::Impl::prepare() {
  ADZE_TRY_STATUS(check_spec(spec));
  ADZE_TRY_STATUS(index.build(spec.tokens));
  ADZE_TRY_STATUS(added.create(spec));
  if (!spec.pre_tokenizer.empty() || (spec.stages.empty() && spec.kind == TokenizerKind::byte_bpe)) {
    ADZE_TRY(NamedPreTokenizer named, named_pre_tokenizer(spec.pre_tokenizer));
    spec.stages = std::move(named.stages);
    spec.ignore_merges = spec.ignore_merges || named.ignore_merges;
  }
  ADZE_TRY(pre_tokenizer, PreTokenizer::create(spec.stages));
  switch (spec.kind) {
    case TokenizerKind::byte_bpe: ADZE_TRY_STATUS(byte_bpe.create(spec, index)); break;
    case TokenizerKind::character_bpe: ADZE_TRY_STATUS(character_bpe.create(spec, index)); break;
    case TokenizerKind::sentencepiece_bpe: sentencepiece.create(spec, index); break;
    case TokenizerKind::unigram: unigram.create(spec, index); break;
  }
  find_ends();
  take_fingerprint();
  spec.merges = {};  // their table is built
  return {};
}

void Tokenizer::Impl::find_ends() {
  end_of_generation = spec.end_of_generation;
  for (const auto& id : {spec.eos, spec.eot}) {
    if (id) end_of_generation.push_back(*id);
  }
  const auto special = [&](std::string_view name) {
    const auto id = index.find(name);
    return id && added.is_special(*id) ? id : std::nullopt;
  };
  // Where answers end with <|return|> (channels), <|end|> only ends a message.
  const bool channels = special("<|return|>").has_value();
  for (const std::string_view name : kTurnEnds) {
    if (channels && name == "<|end|>") continue;
    if (const auto id = special(name)) end_of_generation.push_back(*id);
  }
  std::sort(end_of_generation.begin(), end_of_generation.end());
  end_of_generation.erase(std::unique(end_of_generation.begin(), end_of_generation.end()), end_of_generation.end());
}

void Tokenizer::Impl::take_fingerprint() {
  Digest d{0x243F6A8885A308D3u, 0x13198A2E03707344u};
  const auto add = [&d](std::uint64_t value) {
    d.low = hash_mix(d.low ^ value, 0x9E3779B97F4A7C15u);
    d.high = hash_mix(d.high + value, 0xD6E8FEB86659FD93u) + d.low;
  };
  const auto add_text = [&](std::string_view text) { add(hash_text(text, text.size())); };
  add(static_cast<std::uint64_t>(spec.kind));
  for (const std::string_view token : spec.tokens) add_text(token);
  for (const std::string_view merge : spec.merges) add_text(merge);
  for (const float score : spec.scores) add(std::bit_cast<std::uint32_t>(score));
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (added.is_special(static_cast<TokenId>(id)) || type_of(static_cast<TokenId>(id)) != TokenType::normal) {
      add(id * 16 + static_cast<std::uint64_t>(type_of(static_cast<TokenId>(id))));
    }
  }
  for (const SplitStage& stage : spec.stages) {
    add_text(stage.pattern);
    add(static_cast<std::uint64_t>(stage.cut) * 2 + (stage.invert ? 1u : 0u));
  }
  const std::array<bool, 11> switches = {spec.ignore_merges,
                                         spec.add_bos,
                                         spec.add_eos,
                                         spec.add_space_prefix,
                                         spec.prefix_every_section,
                                         spec.prefix_if_missing,
                                         spec.byte_fallback,
                                         spec.unknown_gives_unk,
                                         spec.fuse_unknown,
                                         spec.remove_extra_whitespaces,
                                         spec.nfc};
  for (const bool on : switches) add(on ? 1 : 2);
  fingerprint = digest(std::as_bytes(std::span(&d, 1)));
}

void Tokenizer::Impl::normalise(std::string_view text, bool first, std::string& out) const {
  out.clear();
  std::string composed;
  if (spec.nfc) {
    composed = to_nfc(text);
    text = composed;
  }
  std::string trimmed;
  if (spec.remove_extra_whitespaces) {
    for (const char c : text) {
      if (c != ' ' || (!trimmed.empty() && trimmed.back() != ' ')) trimmed += c;
    }
    if (trimmed.ends_with(' ')) trimmed.pop_back();
    text = trimmed;
  }
  if (text.empty()) return;
  const bool marks = spec.kind != TokenizerKind::byte_bpe;
  const std::string_view space = marks ? kSpaceMark : " ";
  const bool present = text.front() == ' ' || (marks && text.starts_with(kSpaceMark));
  if (spec.add_space_prefix && (first || spec.prefix_every_section) && !(spec.prefix_if_missing && present))
    out += space;
  if (!marks) {
    out += text;
    return;
  }
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
}

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<TokenId>& out, MergeScratch& scratch) const {
  switch (spec.kind) {
    case TokenizerKind::byte_bpe: return byte_bpe.encode(piece, out, scratch);
    case TokenizerKind::character_bpe: return character_bpe.encode(piece, out, scratch);
    case TokenizerKind::sentencepiece_bpe: return sentencepiece.encode(piece, out);
    case TokenizerKind::unigram: return unigram.encode(piece, out);
  }
}

Result<std::vector<TokenId>> Tokenizer::Impl::encode_sections(std::span<const Section> sections, std::size_t bytes,
                                                              EncodeOptions options) const {
  std::vector<TokenId> ids;
  ids.reserve(bytes / 3 + 4);
  MergeScratch scratch;
  std::vector<std::string_view> pieces;
  std::string normalised;
  Pattern::Budget budget{(bytes + 1024) * limits::kPatternStepsPerByte};
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (sections[i].id >= 0) {
      ids.push_back(sections[i].id);
      continue;
    }
    std::string_view text = sections[i].text;
    if (!normalises_nothing()) {
      normalise(text, i == 0, normalised);
      text = normalised;
    }
    pieces.clear();
    ADZE_TRY_STATUS(pre_tokenizer.split(text, budget, pieces));
    for (const std::string_view piece : pieces) encode_piece(piece, ids, scratch);
  }
  add_ends(ids, options);
  return ids;
}

void Tokenizer::Impl::add_ends(std::vector<TokenId>& ids, EncodeOptions options) const {
  if (options.add_bos && spec.bos && (ids.empty() || ids.front() != *spec.bos)) ids.insert(ids.begin(), *spec.bos);
  if (options.add_eos && spec.eos && (ids.empty() || ids.back() != *spec.eos)) ids.push_back(*spec.eos);
}

namespace {

Status check_size(std::size_t bytes) {
  if (bytes <= limits::kTokenizerMaxTextBytes) return {};
  return fail(
      ErrorCode::limit_exceeded,
      fmt::format("the text has {} bytes; at most {} can be tokenised at once", bytes, limits::kTokenizerMaxTextBytes),
      "split the text");
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(TokenizerSpec spec) {
  auto impl = std::make_unique<Impl>();
  impl->spec = std::move(spec);
  ADZE_TRY_STATUS(impl->prepare());
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  ADZE_TRY_STATUS(check_size(text.size()));
  std::string repaired;
  if (!is_valid_utf8(text)) {
    append_valid_utf8(text, repaired);
    text = repaired;
  }
  std::vector<Section> sections;
  if (options.parse_special) {
    impl_->added.split_all(text, sections);
  } else {
    impl_->added.split_plain(text, sections);
  }
  return impl_->encode_sections(sections, text.size(), options);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::span<const Segment> segments, EncodeOptions options) const {
  std::size_t bytes = 0;
  for (const Segment& segment : segments) {
    bytes += segment.text.size();
    ADZE_TRY_STATUS(check_size(bytes));
  }
  std::string joined;
  joined.reserve(bytes);
  std::vector<LiteralRange> literals;
  for (const Segment& segment : segments) {
    const std::size_t begin = joined.size();
    append_valid_utf8(segment.text, joined);
    if (!segment.literal || joined.size() == begin) continue;
    if (!literals.empty() && literals.back().end == begin) {
      literals.back().end = joined.size();
    } else {
      literals.push_back({begin, joined.size()});
    }
  }
  std::vector<Section> sections;
  impl_->added.split_segments(joined, literals, sections);
  return impl_->encode_sections(sections, joined.size(), options);
}

void Tokenizer::append_bytes(TokenId id, std::string& out, DecodeOptions options) const {
  if (!contains(id) || (!options.show_special && is_special(id))) return;
  const std::string_view text = impl_->text_of(id);
  if (kind() != TokenizerKind::byte_bpe) {
    if (const std::int32_t byte = impl_->byte_of(id); byte >= 0) {
      out += static_cast<char>(byte);
      return;
    }
    for (std::size_t at = 0; at < text.size();) {
      const bool mark = text.substr(at).starts_with(kSpaceMark);
      out += mark ? ' ' : text[at];
      at += mark ? kSpaceMark.size() : 1;
    }
    return;
  }
  // A token with a character outside the alphabet is an added one, spelled as it is.
  const std::size_t start = out.size();
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Part part = first_utf8_part(text.substr(at));
    const int byte = part.kind == Utf8Kind::character ? alphabet_to_byte(code_point_at(text, at).value) : -1;
    if (byte < 0) {
      out.resize(start);
      out += text;
      return;
    }
    out += static_cast<char>(byte);
    at += part.bytes;
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string bytes, text;
  std::string run;  // of byte tokens: a run that is not UTF-8 as a whole gives one U+FFFD per byte
  const auto end_run = [&] {
    if (is_valid_utf8(run)) {
      bytes += run;
    } else {
      for (std::size_t i = 0; i < run.size(); ++i) bytes += kReplacementUtf8;
    }
    run.clear();
  };
  for (const TokenId id : ids) {
    if (contains(id) && impl_->byte_of(id) >= 0) {
      append_bytes(id, run, options);
      continue;
    }
    if (!run.empty() && contains(id) && (options.show_special || !is_special(id))) end_run();
    append_bytes(id, bytes, options);
  }
  end_run();
  append_valid_utf8(bytes, text);
  if (impl_->spec.strip_leading_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::int32_t Tokenizer::size() const { return static_cast<std::int32_t>(impl_->spec.tokens.size()); }

std::string_view Tokenizer::token_text(TokenId id) const {
  ADZE_CHECK(contains(id), "id {}", id);
  return impl_->text_of(id);
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view text) const { return impl_->index.find(text); }

TokenType Tokenizer::type(TokenId id) const {
  ADZE_CHECK(contains(id), "id {}", id);
  return impl_->type_of(id);
}

bool Tokenizer::is_special(TokenId id) const { return contains(id) && impl_->added.is_special(id); }

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::binary_search(impl_->end_of_generation.begin(), impl_->end_of_generation.end(), id);
}

std::span<const TokenId> Tokenizer::end_of_generation() const { return impl_->end_of_generation; }
std::optional<TokenId> Tokenizer::bos() const { return impl_->spec.bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->spec.eos; }
std::optional<TokenId> Tokenizer::eot() const { return impl_->spec.eot; }
std::optional<TokenId> Tokenizer::unk() const { return impl_->spec.unk; }
std::optional<TokenId> Tokenizer::pad() const { return impl_->spec.pad; }
bool Tokenizer::adds_bos() const { return impl_->spec.add_bos; }
bool Tokenizer::adds_eos() const { return impl_->spec.add_eos; }
bool Tokenizer::strips_leading_space() const { return impl_->spec.strip_leading_space; }
TokenizerKind Tokenizer::kind() const { return impl_->spec.kind; }
std::string_view Tokenizer::pre_tokenizer() const { return impl_->spec.pre_tokenizer; }
Digest Tokenizer::fingerprint() const { return impl_->fingerprint; }

}  // namespace adze::text
