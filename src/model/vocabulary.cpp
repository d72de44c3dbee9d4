#include "model/vocabulary.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/limits.hpp"

namespace adze::model {

namespace {

using text::TokenId;
using text::TokenizerKind;
using text::TokenizerSpec;
using text::TokenType;

constexpr std::string_view kPrefix = "tokenizer.ggml.";

struct KindRow {
  std::string_view name;  // tokenizer.ggml.model
  TokenizerKind kind;
  bool add_bos, add_eos, add_space_prefix;  // where the file does not say
};

constexpr std::array<KindRow, 4> kKinds = {{
    {"gpt2", TokenizerKind::byte_bpe, false, false, false},
    {"llama", TokenizerKind::sentencepiece_bpe, true, false, true},
    {"gemma4", TokenizerKind::character_bpe, true, false, false},
    {"t5", TokenizerKind::unigram, false, true, true},
}};

// Byte-level vocabularies whose tokenizer puts BOS first although old files do not say so.
constexpr std::array<std::string_view, 6> kBosByDefault = {"llama-bpe", "llama3",  "llama-v3",
                                                           "falcon3",   "pixtral", "tekken"};

// "<|name>", "<name|>", "<|name|>": some converters leave such tokens of a chat format marked as normal text. No
// natural vocabulary has one (none of the eight public ones at hand), and no user may be able to type one.
bool looks_like_control(std::string_view token) {
  if (token.size() < 4 || token.front() != '<' || token.back() != '>') return false;
  const bool opens = token[1] == '|', closes = token[token.size() - 2] == '|';
  if (!opens && !closes) return false;
  const std::size_t first = opens ? 2 : 1, last = token.size() - (closes ? 2 : 1);
  return first < last && token.substr(first, last - first).find_first_of("|<> ") == std::string_view::npos;
}

class VocabularyReader {
 public:
  VocabularyReader(const format::Metadata& metadata, std::shared_ptr<const void> storage) : metadata_(metadata) {
    spec_.storage = std::move(storage);
  }

  Result<TokenizerSpec> read() {
    ADZE_TRY(const KindRow kind, read_kind());
    spec_.kind = kind.kind;
    ADZE_TRY_STATUS(read_tokens());
    ADZE_TRY_STATUS(read_types());
    ADZE_TRY_STATUS(read_scores());
    ADZE_TRY_STATUS(read_merges());
    ADZE_TRY_STATUS(read_special_ids());
    ADZE_TRY_STATUS(read_switches(kind));
    return std::move(spec_);
  }

 private:
  static std::string key(std::string_view name) { return std::string(kPrefix).append(name); }

  tl::unexpected<Error> corrupt(std::string_view name, std::string_view what) const {
    return fail(ErrorCode::corrupt_file, fmt::format("{}{} {}", kPrefix, name, what),
                "get the file again, or convert the model again");
  }

  bool scored() const { return spec_.kind == TokenizerKind::sentencepiece_bpe || spec_.kind == TokenizerKind::unigram; }

  Result<KindRow> read_kind() {
    if (!metadata_.has(key("model")) || !metadata_.has(key("tokens"))) {
      return fail(ErrorCode::corrupt_file,
                  "the file has no vocabulary (tokenizer.ggml.model and tokenizer.ggml.tokens)",
                  "get the model as one GGUF with its vocabulary, or pass ids");
    }
    ADZE_TRY(const std::string_view name, metadata_.get_string(key("model")));
    for (const KindRow& row : kKinds) {
      if (row.name == name) return row;
    }
    return fail(
        ErrorCode::unsupported_feature,
        fmt::format("the tokenizer \"{}\" (tokenizer.ggml.model) is not one that Adze has", format::printable(name)),
        "known: gpt2 (byte-level BPE), llama (SentencePiece BPE), gemma4, t5 (unigram)");
  }

  Status read_tokens() {
    ADZE_TRY(const format::StringArray tokens, metadata_.get_strings(key("tokens")));
    if (tokens.empty()) return corrupt("tokens", "is empty");
    if (tokens.size() > static_cast<std::size_t>(limits::kMaxVocabulary)) {
      return fail(ErrorCode::limit_exceeded, fmt::format("tokenizer.ggml.tokens has {} tokens, more than {}",
                                                         tokens.size(), limits::kMaxVocabulary));
    }
    spec_.tokens.reserve(tokens.size());
    for (const std::string_view token : tokens) spec_.tokens.push_back(token);
    return {};
  }

  Status check_length(std::string_view name, std::size_t length) const {
    if (length == spec_.tokens.size()) return {};
    return corrupt(name, fmt::format("has {} values for {} tokens", length, spec_.tokens.size()));
  }

  Status read_types() {
    if (!metadata_.has(key("token_type"))) return {};
    ADZE_TRY(const auto types, metadata_.get_integers(key("token_type")));
    ADZE_TRY_STATUS(check_length("token_type", types.size()));
    spec_.types.reserve(types.size());
    for (std::size_t id = 0; id < types.size(); ++id) {
      const std::int64_t type = types[id];
      if (type < 0 || type > 6) return corrupt("token_type", fmt::format("has the type {} for token {}", type, id));
      const bool normal = type <= 1;  // 0: undefined
      const bool control = normal && looks_like_control(spec_.tokens[id]);
      spec_.types.push_back(control ? TokenType::control : normal ? TokenType::normal : static_cast<TokenType>(type));
    }
    return {};
  }

  Status read_scores() {
    if (!scored()) return {};  // ranked merges do not look at them
    ADZE_TRY(const auto scores, metadata_.get_floats(key("scores")));
    ADZE_TRY_STATUS(check_length("scores", scores.size()));
    spec_.scores = scores.to_vector();
    for (std::size_t id = 0; id < spec_.scores.size(); ++id) {
      if (!std::isfinite(spec_.scores[id])) return corrupt("scores", fmt::format("is not finite for token {}", id));
    }
    return {};
  }

  Status read_merges() {
    if (scored()) return {};
    ADZE_TRY(const format::StringArray merges, metadata_.get_strings(key("merges")));
    if (merges.size() > limits::kTokenizerMaxMerges) {
      return fail(ErrorCode::limit_exceeded, fmt::format("tokenizer.ggml.merges has {} merges, more than {}",
                                                         merges.size(), limits::kTokenizerMaxMerges));
    }
    spec_.merges.reserve(merges.size());
    for (const std::string_view merge : merges) spec_.merges.push_back(merge);
    return {};
  }

  Result<std::optional<TokenId>> read_id(std::string_view name) const {
    if (!metadata_.has(key(name))) return std::optional<TokenId>();
    ADZE_TRY(const std::int64_t id, metadata_.get_i64(key(name)));
    if (id < 0 || static_cast<std::uint64_t>(id) >= spec_.tokens.size()) {
      return corrupt(name, fmt::format("is {}, but the vocabulary has {} tokens", id, spec_.tokens.size()));
    }
    return std::optional(static_cast<TokenId>(id));
  }

  Status read_special_ids() {
    const std::pair<std::string_view, std::optional<TokenId>*> rows[] = {
        {"bos_token_id", &spec_.bos},     {"eos_token_id", &spec_.eos},     {"eot_token_id", &spec_.eot},
        {"unknown_token_id", &spec_.unk}, {"padding_token_id", &spec_.pad}, {"mask_token_id", &spec_.mask}};
    for (const auto& [name, id] : rows) {
      ADZE_TRY(*id, read_id(name));
    }
    ADZE_TRY(spec_.sep, read_id(metadata_.has(key("seperator_token_id")) ? "seperator_token_id"  // GGUF's spelling
                                                                         : "separator_token_id"));
    ADZE_TRY(const auto end_of_message, read_id("eom_token_id"));
    if (end_of_message) spec_.end_of_generation.push_back(*end_of_message);
    // SentencePiece's defaults, which files may leave out.
    if (spec_.kind == TokenizerKind::sentencepiece_bpe && spec_.tokens.size() > 2) {
      if (!metadata_.has(key("unknown_token_id"))) spec_.unk = 0;
      if (!metadata_.has(key("bos_token_id"))) spec_.bos = 1;
      if (!metadata_.has(key("eos_token_id"))) spec_.eos = 2;
    }
    return {};
  }

  Status read_switches(const KindRow& kind) {
    if (spec_.kind == TokenizerKind::byte_bpe) {
      ADZE_TRY(const std::string_view pre, metadata_.get_string_or(key("pre"), ""));
      spec_.pre_tokenizer = std::string(pre);
      spec_.unknown_gives_unk = false;  // the id in the file is a name for people; bytes without tokens are dropped
    }
    bool add_bos = kind.add_bos;
    for (const std::string_view name : kBosByDefault) add_bos = add_bos || spec_.pre_tokenizer == name;
    ADZE_TRY(spec_.add_bos, metadata_.get_bool_or(key("add_bos_token"), add_bos));
    ADZE_TRY(spec_.add_eos, metadata_.get_bool_or(key("add_eos_token"), kind.add_eos));
    if (spec_.kind == TokenizerKind::byte_bpe) return {};
    ADZE_TRY(spec_.add_space_prefix, metadata_.get_bool_or(key("add_space_prefix"), kind.add_space_prefix));
    spec_.prefix_every_section = spec_.kind == TokenizerKind::sentencepiece_bpe;
    spec_.strip_leading_space = spec_.add_space_prefix;
    if (!scored()) return {};
    ADZE_TRY(spec_.remove_extra_whitespaces, metadata_.get_bool_or(key("remove_extra_whitespaces"), false));
    const format::MetadataValue* map = metadata_.find(key("precompiled_charsmap"));
    if (map != nullptr && map->count > 0) {
      return fail(ErrorCode::unsupported_feature,
                  "the tokenizer normalises text by a table of its own (tokenizer.ggml.precompiled_charsmap)",
                  "Adze does not have that step; use another model");
    }
    return {};
  }

  const format::Metadata& metadata_;
  TokenizerSpec spec_;
};

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_gguf(const format::Metadata& metadata, std::shared_ptr<const void> storage) {
  return VocabularyReader(metadata, std::move(storage)).read();
}

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const format::Metadata& metadata,
                                                              std::shared_ptr<const void> storage) {
  ADZE_TRY(TokenizerSpec spec, tokenizer_spec_from_gguf(metadata, std::move(storage)));
  return text::Tokenizer::create(std::move(spec));
}

}  // namespace adze::model
