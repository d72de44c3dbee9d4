#include "text/pretokenizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/limits.hpp"
#include "text/unicode.hpp"

namespace adze::text {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words that change case inside: upper-case run then lower-case run, or upper-case only.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekV3Kana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kDeepseekV3Rest =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekCoderCjk = R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

struct Row {
  std::string_view name;
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"gpt-2", {kGpt2Pattern}},
      {"gpt2", {kGpt2Pattern}},
      {"phi-2", {kGpt2Pattern}},
      {"olmo", {kGpt2Pattern}},
      {"mellum", {kGpt2Pattern}},
      {"trillion", {kGpt2Pattern}},
      {"llama-bpe", {kLlama3}, true},
      {"llama3", {kLlama3}, true},
      {"llama-v3", {kLlama3}, true},
      {"falcon3", {kLlama3}, true},
      {"pixtral", {kLlama3}, true},
      {"smaug-bpe", {kLlama3}},
      {"dbrx", {kLlama3}},
      {"qwen2", {kQwen2}},
      {"megrez", {kQwen2}},
      {"kormo", {kQwen2}},
      {"deepseek-r1-qwen", {kQwen2}},
      {"qwen35", {kQwen35}},
      {"smollm", {R"(\p{N})", kGpt2Pattern}},
      {"starcoder", {R"(\p{N})", kGpt2Pattern}},
      {"refact", {R"(\p{N})", kGpt2Pattern}},
      {"codeshell", {R"(\p{N})", kGpt2Pattern}},
      {"minerva-7b", {R"(\p{N})", kGpt2Pattern}},
      {"command-r", {R"(\p{N})", kGpt2Pattern}},
      {"gpt-4o", {kGpt4o}},
      {"llama4", {kGpt4o}},
      {"tekken", {kTekken}, true},
      {"deepseek-v3", {R"(\p{N}{1,3})", kDeepseekV3Kana, kDeepseekV3Rest}},
      {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCoderCjk, R"(\p{N})"}},
  };
  return table;
}

}  // namespace

SplitStage single_digits_stage() { return {.pattern = R"(\p{N})"}; }

Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name) {
  for (const Row& row : rows()) {
    if (row.name != name) continue;
    NamedPreTokenizer named{.ignore_merges = row.ignore_merges};
    for (const std::string_view pattern : row.patterns) named.stages.push_back({.pattern = std::string(pattern)});
    return named;
  }
  std::vector<std::string_view> known;
  for (const Row& row : rows()) known.push_back(row.name);
  if (name.empty()) {
    return fail(ErrorCode::unsupported_feature, "the vocabulary does not name its pre-tokenizer (tokenizer.ggml.pre)",
                "convert the model again with a current converter");
  }
  return fail(ErrorCode::unsupported_feature, fmt::format("the pre-tokenizer \"{}\" is not one that Adze has", name),
              fmt::format("known: {}; a tokenizer.json carries its own patterns", fmt::join(known, ", ")));
}

namespace {

// One spelling for patterns that differ in escapes alone: \x{4E00} as the character, no \ where none is needed.
std::string plain(std::string_view pattern) {
  constexpr std::string_view kMeta = R"(\^$.|?*+()[]{}-)";
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char next = pattern[++i];
    std::uint32_t code = 0;
    const std::size_t end = pattern.substr(i).starts_with("x{") ? pattern.find('}', i) : pattern.npos;
    if (end != pattern.npos &&
        std::from_chars(pattern.data() + i + 2, pattern.data() + end, code, 16).ptr == pattern.data() + end &&
        code <= 0x10FFFF) {
      append_utf8(code, out);
      i = end;
      continue;
    }
    const bool needed = is_word(static_cast<unsigned char>(next)) || kMeta.find(next) != kMeta.npos;
    if (needed) out += '\\';
    out += next;
  }
  return out;
}

}  // namespace

std::string_view name_of_pre_tokenizer(const std::vector<SplitStage>& stages, bool ignore_merges) {
  const auto same = [](const SplitStage& stage, std::string_view pattern) {
    return plain(stage.pattern) == plain(pattern) && stage.cut == SplitStage::Cut::matches && !stage.invert;
  };
  std::string_view name;
  for (const Row& row : rows()) {
    if (!std::ranges::equal(stages, row.patterns, same)) continue;
    if (row.ignore_merges == ignore_merges) return row.name;
    if (name.empty()) name = row.name;
  }
  return name;
}

Result<PreTokenizer> PreTokenizer::create(const std::vector<SplitStage>& stages) {
  if (stages.size() > limits::kPatternMaxStages) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("the pre-tokenizer has {} stages, more than {}", stages.size(), limits::kPatternMaxStages));
  }
  PreTokenizer result;
  for (const SplitStage& stage : stages) {
    ADZE_TRY(Pattern pattern, Pattern::compile(stage.pattern));
    result.stages_.push_back({std::move(pattern), stage.cut, stage.invert});
  }
  return result;
}

Status PreTokenizer::split_piece(const Stage& stage, std::string_view piece, Pattern::Budget& budget,
                                 Pattern::Scratch& scratch, std::vector<std::string_view>& pieces) {
  bool after_match = false;  // two matches in a row stay two pieces
  std::size_t gap = 0;       // where the text that no match has taken starts
  const auto add = [&](std::size_t from, std::size_t to, bool is_match) {
    if (from == to) return;
    const bool matched = is_match != stage.invert;
    switch (stage.cut) {
      case SplitStage::Cut::matches: break;
      case SplitStage::Cut::gaps:
        if (matched) return;
        break;
      case SplitStage::Cut::merge_with_previous:
        if (std::exchange(after_match, matched)) break;
        if (matched && from > 0) {
          auto& last = pieces.back();
          last = {last.data(), last.size() + (to - from)};
          return;
        }
        break;
    }
    pieces.push_back(piece.substr(from, to - from));
  };
  for (std::size_t at = 0; at < piece.size();) {
    const auto end = stage.pattern.match(piece, at, budget, scratch);
    if (budget.steps == 0) {
      return fail(ErrorCode::limit_exceeded,
                  fmt::format("the model's pre-tokenizer pattern \"{}\" needs more than {} steps per byte on this text",
                              stage.pattern.source().substr(0, 100), limits::kPatternStepsPerByte),
                  "shorten the text, or use another model");
    }
    if (!end || *end == at) {
      at += code_point_at(piece, at).bytes;
      continue;
    }
    add(gap, at, false);
    add(at, *end, true);
    at = gap = *end;
  }
  add(gap, piece.size(), false);
  return {};
}

Status PreTokenizer::split(std::string_view text, Pattern::Budget& budget,
                           std::vector<std::string_view>& pieces) const {
  if (text.empty()) return {};
  if (stages_.empty()) {
    pieces.push_back(text);
    return {};
  }
  Pattern::Scratch scratch;
  if (stages_.size() == 1) return split_piece(stages_.front(), text, budget, scratch, pieces);
  std::vector<std::string_view> before = {text}, after;
  for (const Stage& stage : stages_) {
    after.clear();
    for (const std::string_view piece : before) {
      ADZE_TRY_STATUS(split_piece(stage, piece, budget, scratch, after));
    }
    std::swap(before, after);
  }
  pieces.insert(pieces.end(), before.begin(), before.end());
  return {};
}

}  // namespace adze::text
