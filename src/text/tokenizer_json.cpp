// simdjson reads the file: a Gemma tokenizer.json has 30 MB. Its parser keeps the strings, unescaped, and becomes the
// spec's storage, so that no token is copied.
#include "text/tokenizer_json.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/limits.hpp"
#include "text/pretokenizer.hpp"
#include "text/unicode.hpp"

namespace adze::text {

namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

struct Storage {
  simdjson::dom::parser parser;
  std::string merges;  // merges that come as pairs, joined by a space; reserved in full first, so that views stay
};

tl::unexpected<Error> corrupt(std::string message) {
  return fail(ErrorCode::corrupt_file, "tokenizer.json: " + std::move(message), "get the file again");
}

tl::unexpected<Error> unsupported(std::string_view where, std::string_view what) {
  return fail(ErrorCode::unsupported_feature,
              fmt::format("tokenizer.json: {} \"{}\" is not one that Adze has", where, what.substr(0, 100)),
              "use a GGUF of the model, or another model");
}

// Absent and null are the same here.
std::optional<element> member(object from, std::string_view key) {
  element value;
  if (from.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

Result<std::string_view> string_or(object from, std::string_view key, std::string_view fallback) {
  const auto value = member(from, key);
  if (!value) return fallback;
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) return corrupt(fmt::format("\"{}\" is not a string", key));
  return text;
}

Result<bool> bool_or(object from, std::string_view key, bool fallback) {
  const auto value = member(from, key);
  if (!value) return fallback;
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS) return corrupt(fmt::format("\"{}\" is not a boolean", key));
  return flag;
}

Result<object> object_of(element value, std::string_view what) {
  object found;
  if (value.get(found) != simdjson::SUCCESS) return corrupt(fmt::format("{} is not an object", what));
  return found;
}

Result<array> array_of(element value, std::string_view what) {
  array found;
  if (value.get(found) != simdjson::SUCCESS) return corrupt(fmt::format("{} is not an array", what));
  return found;
}

// Calls visit for a component, or for each part of a Sequence of them.
template <class Visit>
Status for_each_component(object component, std::string_view parts_key, Visit visit, int depth = 0) {
  ADZE_TRY(const std::string_view type, string_or(component, "type", ""));
  if (type != "Sequence") return visit(component, type);
  if (depth > 8) return corrupt("sequences are nested too deep");
  const auto parts = member(component, parts_key);
  if (!parts) return corrupt(fmt::format("a Sequence has no \"{}\"", parts_key));
  ADZE_TRY(const array list, array_of(*parts, fmt::format("\"{}\"", parts_key)));
  for (const element part : list) {
    ADZE_TRY(const object inner, object_of(part, fmt::format("a member of \"{}\"", parts_key)));
    ADZE_TRY_STATUS(for_each_component(inner, parts_key, visit, depth + 1));
  }
  return {};
}

// A literal string as a pattern that matches it alone.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= 0x80 || is_word(static_cast<unsigned char>(c)) || c == ' ';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{{{:X}}}", static_cast<int>(c));
      continue;
    }
    if (!plain && c != '<') out += '\\';
    out += c;
  }
  return out;
}

class Reader {
 public:
  Reader(object root, std::shared_ptr<Storage> storage, TokenizerJsonOptions options)
      : root_(root), storage_(std::move(storage)), options_(options) {}

  Result<TokenizerSpec> read() {
    ADZE_TRY_STATUS(read_normalizer());
    ADZE_TRY_STATUS(read_pre_tokenizer());
    ADZE_TRY_STATUS(read_decoder());
    ADZE_TRY_STATUS(read_model());
    ADZE_TRY_STATUS(read_added_tokens());
    ADZE_TRY_STATUS(fill_types());
    ADZE_TRY_STATUS(read_post_processor());
    spec_.storage = storage_;
    return std::move(spec_);
  }

 private:
  Status read_normalizer() {
    const auto value = member(root_, "normalizer");
    if (!value) return {};
    ADZE_TRY(const object normalizer, object_of(*value, "\"normalizer\""));
    return for_each_component(normalizer, "normalizers", [this](object part, std::string_view type) -> Status {
      if (type == "NFC") {
        spec_.nfc = options_.apply_nfc;
        return {};
      }
      if (type == "Prepend") {
        ADZE_TRY(const std::string_view text, string_or(part, "prepend", ""));
        if (text != kSpaceMark) return unsupported("the normalizer Prepend of", text);
        spec_.add_space_prefix = spec_.prefix_every_section = true;
        return {};
      }
      if (type == "Replace") {
        ADZE_TRY(const std::string_view content, string_or(part, "content", ""));
        ADZE_TRY(const std::string_view from, pattern_string(part));
        if (from != " " || content != kSpaceMark) return unsupported("the normalizer Replace of", from);
        marks_spaces_ = true;
        return {};
      }
      return unsupported("the normalizer", type);
    });
  }

  // The String of a component's "pattern"; empty when it has none.
  static Result<std::string_view> pattern_string(object part) {
    const auto value = member(part, "pattern");
    if (!value) return std::string_view();
    ADZE_TRY(const object pattern, object_of(*value, "\"pattern\""));
    return string_or(pattern, "String", "");
  }

  Status read_pre_tokenizer() {
    const auto value = member(root_, "pre_tokenizer");
    if (!value) return {};
    ADZE_TRY(const object pre, object_of(*value, "\"pre_tokenizer\""));
    return for_each_component(pre, "pretokenizers", [this](object part, std::string_view type) -> Status {
      if (type == "Split") return read_split(part);
      if (type == "ByteLevel") return read_byte_level(part);
      if (type == "Metaspace") return read_metaspace(part);
      if (type == "Digits") {
        ADZE_TRY(const bool individual, bool_or(part, "individual_digits", false));
        spec_.stages.push_back(individual ? single_digits_stage() : SplitStage{.pattern = R"(\p{N}+)"});
        return {};
      }
      if (type == "WhitespaceSplit") {
        spec_.stages.push_back({.pattern = R"(\s)", .cut = SplitStage::Cut::gaps});
        return {};
      }
      return unsupported("the pre-tokenizer", type);
    });
  }

  Status read_split(object part) {
    const auto value = member(part, "pattern");
    if (!value) return corrupt("a Split has no \"pattern\"");
    ADZE_TRY(const object pattern, object_of(*value, "\"pattern\""));
    ADZE_TRY(const std::string_view regex, string_or(pattern, "Regex", ""));
    ADZE_TRY(const std::string_view text, string_or(pattern, "String", ""));
    if (regex.empty() && text.empty()) return corrupt("a Split has neither a \"Regex\" nor a \"String\"");
    SplitStage stage{.pattern = regex.empty() ? escaped(text) : std::string(regex)};
    ADZE_TRY(stage.invert, bool_or(part, "invert", false));
    ADZE_TRY(const std::string_view behavior, string_or(part, "behavior", ""));
    if (behavior == "Removed") {
      stage.cut = SplitStage::Cut::gaps;
    } else if (behavior == "MergedWithPrevious") {
      stage.cut = SplitStage::Cut::merge_with_previous;
    } else if (behavior != "Isolated") {
      return unsupported("the behavior of Split", behavior);
    }
    spec_.stages.push_back(std::move(stage));
    return {};
  }

  Status read_byte_level(object part) {
    byte_level_ = true;
    ADZE_TRY(const bool own_pattern, bool_or(part, "use_regex", true));
    ADZE_TRY(const bool prefix, bool_or(part, "add_prefix_space", true));
    if (own_pattern) spec_.stages.push_back({.pattern = std::string(kGpt2Pattern)});
    if (prefix) spec_.add_space_prefix = spec_.prefix_every_section = spec_.prefix_if_missing = true;
    return {};
  }

  Status read_metaspace(object part) {
    ADZE_TRY(const std::string_view mark, string_or(part, "replacement", kSpaceMark));
    if (mark != kSpaceMark) return unsupported("the replacement of Metaspace", mark);
    marks_spaces_ = true;
    ADZE_TRY(const bool old_prefix, bool_or(part, "add_prefix_space", true));
    ADZE_TRY(const std::string_view scheme, string_or(part, "prepend_scheme", old_prefix ? "always" : "never"));
    if (scheme != "always" && scheme != "first" && scheme != "never") return unsupported("the prepend_scheme", scheme);
    spec_.add_space_prefix = scheme != "never";
    spec_.prefix_every_section = scheme == "always";
    spec_.prefix_if_missing = true;
    ADZE_TRY(const bool split, bool_or(part, "split", true));
    if (split) spec_.stages.push_back({.pattern = fmt::format("{0}[^{0}]*|[^{0}]+", kSpaceMark)});
    return {};
  }

  Status read_decoder() {
    const auto value = member(root_, "decoder");
    if (!value) return {};
    ADZE_TRY(const object decoder, object_of(*value, "\"decoder\""));
    return for_each_component(decoder, "decoders", [this](object part, std::string_view type) -> Status {
      if (type == "ByteLevel") byte_level_ = true;
      if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return {};
      if (type == "Replace") {
        ADZE_TRY(const std::string_view content, string_or(part, "content", ""));
        ADZE_TRY(const std::string_view from, pattern_string(part));
        return from == kSpaceMark && content == " " ? Status{} : unsupported("the decoder Replace of", from);
      }
      if (type == "Strip") {
        ADZE_TRY(const std::string_view content, string_or(part, "content", " "));
        if (content != " ") return unsupported("the decoder Strip of", content);
        spec_.strip_leading_space = true;
        return {};
      }
      if (type == "Metaspace") {
        ADZE_TRY(const bool old_prefix, bool_or(part, "add_prefix_space", true));
        ADZE_TRY(const std::string_view scheme, string_or(part, "prepend_scheme", old_prefix ? "always" : "never"));
        spec_.strip_leading_space = scheme != "never";
        return {};
      }
      return unsupported("the decoder", type);
    });
  }

  Status read_model() {
    const auto value = member(root_, "model");
    if (!value) {
      return fail(ErrorCode::not_a_model, "the JSON has no \"model\", so it is no tokenizer.json",
                  "give a tokenizer.json or a GGUF file");
    }
    ADZE_TRY(const object model, object_of(*value, "\"model\""));
    ADZE_TRY(const std::string_view type, string_or(model, "type", member(model, "merges") ? "BPE" : ""));
    if (type == "BPE") return read_bpe(model);
    if (type == "Unigram") return read_unigram(model);
    return unsupported("the model type", type);
  }

  Status read_bpe(object model) {
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      ADZE_TRY(const std::string_view text, string_or(model, key, ""));
      if (!text.empty()) return unsupported("the BPE option", key);
    }
    if (const auto dropout = member(model, "dropout")) {
      double rate = 0;
      if (dropout->get(rate) != simdjson::SUCCESS) return corrupt("\"dropout\" is not a number");
      if (rate != 0) return unsupported("the BPE option", "dropout");
    }
    if (!byte_level_ && !marks_spaces_) return unsupported("a BPE model without", "ByteLevel or U+2581 for spaces");
    spec_.kind = byte_level_ ? TokenizerKind::byte_bpe : TokenizerKind::character_bpe;
    ADZE_TRY(spec_.ignore_merges, bool_or(model, "ignore_merges", false));
    ADZE_TRY(spec_.byte_fallback, bool_or(model, "byte_fallback", false));
    ADZE_TRY(spec_.fuse_unknown, bool_or(model, "fuse_unk", false));
    const auto vocabulary = member(model, "vocab");
    if (!vocabulary) return corrupt("the model has no \"vocab\"");
    ADZE_TRY(const object tokens, object_of(*vocabulary, "\"vocab\""));
    for (const auto [text, id] : tokens) {
      std::int64_t number = 0;
      if (id.get(number) != simdjson::SUCCESS)
        return corrupt(fmt::format("the id of token \"{}\" is no integer", text));
      ADZE_TRY_STATUS(place(text, number));
    }
    ADZE_TRY_STATUS(read_merges(model));
    ADZE_TRY(const std::string_view unk, string_or(model, "unk_token", ""));
    if (unk.empty()) return {};
    element unk_id;
    std::int64_t number = 0;
    if (tokens.at_key(unk).get(unk_id) != simdjson::SUCCESS || unk_id.get(number) != simdjson::SUCCESS) {
      return corrupt(fmt::format("the unk_token \"{}\" is not in the vocabulary", unk));
    }
    spec_.unk = static_cast<TokenId>(number);
    return {};
  }

  // Puts a token at its id. Errors: out of range, taken by another text.
  Status place(std::string_view text, std::int64_t id) {
    if (id < 0 || id >= limits::kMaxVocabulary) {
      return corrupt(fmt::format("the id {} of token \"{}\" is out of range", id, text));
    }
    const auto at = static_cast<std::size_t>(id);
    if (at >= spec_.tokens.size()) {
      spec_.tokens.resize(at + 1);
      taken_.resize(at + 1, false);
    }
    if (taken_[at] && spec_.tokens[at] != text) {
      return corrupt(fmt::format("the tokens \"{}\" and \"{}\" both have id {}", spec_.tokens[at], text, id));
    }
    spec_.tokens[at] = text;
    taken_[at] = true;
    return {};
  }

  Status read_merges(object model) {
    const auto value = member(model, "merges");
    if (!value) return corrupt("the model has no \"merges\"");
    ADZE_TRY(const array merges, array_of(*value, "\"merges\""));
    const auto part_of = [](element pair, std::size_t index) {
      array parts;
      std::string_view text;
      const bool good = pair.get(parts) == simdjson::SUCCESS && parts.size() == 2 &&
                        parts.at(index).get(text) == simdjson::SUCCESS && !text.empty();
      return good ? std::optional(text) : std::nullopt;
    };
    // Of "a b" the first space after the first byte parts the two.
    const auto is_pair = [](std::string_view line) {
      const std::size_t space = line.find(' ', 1);
      return space != std::string_view::npos && space + 1 < line.size();
    };
    std::size_t bytes = 0, number = 0;
    for (const element merge : merges) {
      std::string_view line;
      const bool is_text = merge.get(line) == simdjson::SUCCESS;
      if (is_text && is_pair(line)) {
        ++number;
        continue;
      }
      const auto left = part_of(merge, 0), right = part_of(merge, 1);
      if (is_text || !left || !right)
        return corrupt(fmt::format("merge {} is neither \"a b\" nor [\"a\", \"b\"]", number));
      if (left->find(' ', 1) != std::string_view::npos) return unsupported("a merge with a space inside", *left);
      ++number;
      bytes += left->size() + right->size() + 1;
    }
    storage_->merges.reserve(bytes);
    for (const element merge : merges) {
      std::string_view line;
      if (merge.get(line) != simdjson::SUCCESS) {
        const std::size_t start = storage_->merges.size();
        storage_->merges.append(*part_of(merge, 0)).append(1, ' ').append(*part_of(merge, 1));
        line = std::string_view(storage_->merges).substr(start);
      }
      spec_.merges.push_back(line);
    }
    return {};
  }

  Status read_unigram(object model) {
    if (!marks_spaces_) return unsupported("a Unigram model without", "U+2581 for spaces");
    spec_.kind = TokenizerKind::unigram;
    ADZE_TRY(spec_.byte_fallback, bool_or(model, "byte_fallback", false));
    const auto vocabulary = member(model, "vocab");
    if (!vocabulary) return corrupt("the model has no \"vocab\"");
    ADZE_TRY(const array tokens, array_of(*vocabulary, "\"vocab\""));
    for (const element row : tokens) {
      array pair;
      std::string_view text;
      double score = 0;
      if (row.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(text) != simdjson::SUCCESS ||
          pair.at(1).get(score) != simdjson::SUCCESS) {
        return corrupt(fmt::format("token {} of the vocabulary is not [text, score]", spec_.tokens.size()));
      }
      ADZE_TRY_STATUS(place(text, static_cast<std::int64_t>(spec_.tokens.size())));
      spec_.scores.push_back(static_cast<float>(score));
    }
    if (const auto unk = member(model, "unk_id")) {
      std::int64_t id = 0;
      if (unk->get(id) != simdjson::SUCCESS || id < 0 || static_cast<std::size_t>(id) >= spec_.tokens.size()) {
        return corrupt("\"unk_id\" is not an id of the vocabulary");
      }
      spec_.unk = static_cast<TokenId>(id);
    }
    return {};
  }

  Status read_added_tokens() {
    spec_.added_tokens.emplace();
    const auto value = member(root_, "added_tokens");
    if (!value) return {};
    ADZE_TRY(const array list, array_of(*value, "\"added_tokens\""));
    for (const element item : list) {
      ADZE_TRY(const object token, object_of(item, "a member of \"added_tokens\""));
      std::int64_t id = 0;
      if (token.at_key("id").get(id) != simdjson::SUCCESS) return corrupt("an added token has no \"id\"");
      ADZE_TRY(const std::string_view content, string_or(token, "content", ""));
      ADZE_TRY_STATUS(place(content, id));
      AddedToken added{.id = static_cast<TokenId>(id)};
      ADZE_TRY(added.special, bool_or(token, "special", false));
      ADZE_TRY(added.single_word, bool_or(token, "single_word", false));
      ADZE_TRY(added.lstrip, bool_or(token, "lstrip", false));
      ADZE_TRY(added.rstrip, bool_or(token, "rstrip", false));
      ADZE_TRY(added.normalized, bool_or(token, "normalized", false));
      spec_.added_tokens->push_back(added);
    }
    if (!spec_.scores.empty()) spec_.scores.resize(spec_.tokens.size(), 0.0f);
    return {};
  }

  Status fill_types() {
    // Ids may have holes; one that leaves most ids empty is an attack or a mistake.
    const auto used = static_cast<std::size_t>(std::count(taken_.begin(), taken_.end(), true));
    if (spec_.tokens.size() > 4 * used + 1024) {
      return corrupt(fmt::format("{} tokens have ids up to {}", used, spec_.tokens.size() - 1));
    }
    spec_.types.assign(spec_.tokens.size(), TokenType::normal);
    for (std::size_t id = 0; id < taken_.size(); ++id) {
      if (!taken_[id]) spec_.types[id] = TokenType::unused;
    }
    if (spec_.byte_fallback && spec_.kind != TokenizerKind::byte_bpe) {
      for (std::size_t id = 0; id < spec_.tokens.size(); ++id) {
        const std::string_view text = spec_.tokens[id];
        if (text.size() == 6 && text.starts_with("<0x") && text.ends_with('>')) spec_.types[id] = TokenType::byte;
      }
    }
    for (const AddedToken& added : *spec_.added_tokens) {
      spec_.types[static_cast<std::size_t>(added.id)] = added.special ? TokenType::control : TokenType::user_defined;
    }
    return {};
  }

  // TemplateProcessing says whether BOS and EOS are added; the others only move offsets.
  Status read_post_processor() {
    const auto value = member(root_, "post_processor");
    if (!value) return {};
    ADZE_TRY(const object post, object_of(*value, "\"post_processor\""));
    return for_each_component(post, "processors", [this](object part, std::string_view type) -> Status {
      if (type == "ByteLevel") return {};
      if (type == "TemplateProcessing") return read_template(part);
      return unsupported("the post-processor", type);
    });
  }

  Status read_template(object part) {
    const auto single = member(part, "single");
    if (!single) return {};
    ADZE_TRY(const array items, array_of(*single, "\"single\""));
    bool after_text = false;
    for (const element item : items) {
      ADZE_TRY(const object entry, object_of(item, "a member of \"single\""));
      if (member(entry, "Sequence")) {
        after_text = true;
        continue;
      }
      const auto special = member(entry, "SpecialToken");
      if (!special) return corrupt("a member of \"single\" is neither a Sequence nor a SpecialToken");
      ADZE_TRY(const object token, object_of(*special, "\"SpecialToken\""));
      ADZE_TRY(const std::string_view name, string_or(token, "id", ""));
      const auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), name);
      if (found == spec_.tokens.end())
        return corrupt(fmt::format("the special token \"{}\" is not in the vocabulary", name));
      const auto id = static_cast<TokenId>(found - spec_.tokens.begin());
      (after_text ? spec_.eos : spec_.bos) = id;
      (after_text ? spec_.add_eos : spec_.add_bos) = true;
    }
    return {};
  }

  object root_;
  std::shared_ptr<Storage> storage_;
  TokenizerJsonOptions options_;
  TokenizerSpec spec_;
  std::vector<bool> taken_;
  bool byte_level_ = false;
  bool marks_spaces_ = false;
};

}  // namespace

Result<TokenizerSpec> spec_from_tokenizer_json(std::string_view text, TokenizerJsonOptions options) {
  if (text.size() > limits::kTokenizerMaxJsonBytes) {
    return fail(ErrorCode::limit_exceeded, fmt::format("the tokenizer.json has {} bytes, more than {}", text.size(),
                                                       limits::kTokenizerMaxJsonBytes));
  }
  auto storage = std::make_shared<Storage>();
  element root;
  const simdjson::error_code error = storage->parser.parse(text.data(), text.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return fail(ErrorCode::not_a_model,
                fmt::format("the tokenizer.json is not JSON: {}", simdjson::error_message(error)),
                "get the file again");
  }
  ADZE_TRY(const object members, object_of(root, "the whole"));
  return Reader(members, std::move(storage), options).read();
}

namespace {

Result<object> tokenizer_config(simdjson::dom::parser& parser, std::string_view text) {
  element root;
  object members;
  if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS || root.get(members) != simdjson::SUCCESS) {
    return fail(ErrorCode::corrupt_file, "tokenizer_config.json is not a JSON object", "get the file again");
  }
  return members;
}

}  // namespace

Status apply_tokenizer_config(std::string_view text, TokenizerSpec& spec) {
  simdjson::dom::parser parser;
  ADZE_TRY(const object members, tokenizer_config(parser, text));
  const auto token = [&](std::string_view key, std::optional<TokenId>& id) -> Status {
    const auto value = member(members, key);
    if (!value) return {};
    std::string_view name;
    object wrapped;  // {"content": "<s>", ...}
    if (value->get(name) != simdjson::SUCCESS) {
      if (value->get(wrapped) != simdjson::SUCCESS || wrapped.at_key("content").get(name) != simdjson::SUCCESS) {
        return fail(ErrorCode::corrupt_file, fmt::format("tokenizer_config.json: \"{}\" names no token", key));
      }
    }
    const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), name);
    if (found == spec.tokens.end()) {
      return fail(
          ErrorCode::corrupt_file,
          fmt::format("tokenizer_config.json: \"{}\" is \"{}\", which the vocabulary does not have", key, name));
    }
    id = static_cast<TokenId>(found - spec.tokens.begin());
    return {};
  };
  ADZE_TRY_STATUS(token("bos_token", spec.bos));
  ADZE_TRY_STATUS(token("eos_token", spec.eos));
  ADZE_TRY_STATUS(token("unk_token", spec.unk));
  ADZE_TRY_STATUS(token("pad_token", spec.pad));
  ADZE_TRY(spec.add_bos, bool_or(members, "add_bos_token", spec.add_bos));
  ADZE_TRY(spec.add_eos, bool_or(members, "add_eos_token", spec.add_eos));
  return {};
}

Result<std::optional<std::string>> chat_template_of_tokenizer_config(std::string_view text) {
  simdjson::dom::parser parser;
  ADZE_TRY(const object members, tokenizer_config(parser, text));
  const auto value = member(members, "chat_template");
  if (!value) return std::nullopt;
  std::string_view source;
  if (value->get(source) == simdjson::SUCCESS) return std::string(source);
  array several;
  if (value->get(several) != simdjson::SUCCESS) {
    return fail(ErrorCode::corrupt_file, "tokenizer_config.json: \"chat_template\" is neither a string nor an array");
  }
  for (const element item : several) {
    ADZE_TRY(const object named, object_of(item, "a member of \"chat_template\""));
    ADZE_TRY(const std::string_view name, string_or(named, "name", ""));
    if (name != "default") continue;
    ADZE_TRY(source, string_or(named, "template", ""));
    return std::string(source);
  }
  return std::nullopt;
}

}  // namespace adze::text
