#include "convert/synth.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/random_weights.hpp"
#include "format/gguf.hpp"
#include "format/json.hpp"
#include "model/huggingface/folder.hpp"
#include "model/huggingface/import.hpp"
#include "model/registry.hpp"
#include "text/bpe.hpp"
#include "text/tokenizer_spec.hpp"
#include "text/unicode.hpp"

namespace adze::convert {
namespace {

constexpr int kBytes = 256, kControls = 2;                           // tokens that every vocabulary has
constexpr std::string_view kSpace = "\xC4\xA0";                      // GPT-2's letter for a space
constexpr std::string_view kLetters = "etaoinshrdlcumwfgypbvkjxqz";  // the common ones first

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens(kBytes);
  for (int byte = 0; byte < kBytes; ++byte) {
    text::append_utf8(text::byte_to_alphabet(static_cast<std::uint8_t>(byte)), tokens[static_cast<std::size_t>(byte)]);
  }
  return tokens;
}

Result<format::GgufFile> parse(const std::string& bytes) {
  return format::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "the configuration");
}

}  // namespace

Status add_synthetic_vocabulary(std::int64_t size, format::GgufWriter& out) {
  if (size < kBytes + kControls) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("a vocabulary of {} tokens was asked for, at least {} are needed", size, kBytes + kControls),
        "each byte is a token, and two end and begin a text: give vocab_size a larger value");
  }
  std::vector<std::string> tokens = byte_tokens(), merges, longer{std::string(kSpace)};
  for (const char letter : kLetters) longer.emplace_back(1, letter);
  // Breadth first: all runs of n letters before those of n + 1.
  const auto whole = static_cast<std::size_t>(size) - kControls;
  for (std::size_t parent = 0; tokens.size() < whole; ++parent) {
    for (std::size_t i = 0; i < kLetters.size() && tokens.size() < whole; ++i) {
      merges.push_back(fmt::format("{} {}", longer[parent], kLetters[i]));
      longer.push_back(longer[parent] + kLetters[i]);
      tokens.push_back(longer.back());
    }
  }
  std::vector<std::int32_t> types(tokens.size(), static_cast<std::int32_t>(text::TokenType::normal));
  const auto bos = static_cast<std::uint32_t>(tokens.size());
  tokens.insert(tokens.end(), {"<|begin|>", "<|end|>"});
  types.insert(types.end(), kControls, static_cast<std::int32_t>(text::TokenType::control));
  out.add_string("tokenizer.ggml.model", "gpt2");
  out.add_string("tokenizer.ggml.pre", "gpt-2");
  out.add_strings("tokenizer.ggml.tokens", tokens);
  out.add_i32s("tokenizer.ggml.token_type", types);
  out.add_strings("tokenizer.ggml.merges", merges);
  out.add_u32("tokenizer.ggml.bos_token_id", bos);
  out.add_u32("tokenizer.ggml.eos_token_id", bos + 1);
  out.add_bool("tokenizer.ggml.add_bos_token", false);
  out.add_string("tokenizer.chat_template", kChatTemplate);
  return {};
}

Result<PlannedFile> plan_synthesis(std::string_view config, std::string_view name, std::uint64_t seed,
                                   const WriteOptions& options) {
  ADZE_TRY(const format::JsonObject json, format::JsonObject::parse(config, "config.json"));
  format::GgufWriter imported;
  ADZE_TRY(const model::ImportedConfig import, model::import_config(json, imported));
  const std::string bytes = imported.to_bytes();
  ADZE_TRY(const format::GgufFile metadata, parse(bytes));
  const model::Family& family = *model::find_family(import.architecture);
  auto meant =
      family.config(model::ConfigReader(metadata.metadata(), import.architecture, format::StoreFormat::safetensors));
  if (!meant) return tl::unexpected(model::in_words_of(import.sources, std::move(meant.error())));
  meant->architecture = import.architecture;

  auto writer = std::make_unique<format::GgufWriter>();
  add_metadata(metadata.metadata(), *meant, *writer);
  writer->add_string("general.name", name);
  ADZE_TRY_STATUS(read_back(*writer, family, *meant));
  ADZE_TRY_STATUS(add_synthetic_vocabulary(meant->vocabulary_size, *writer));
  const auto weights = std::make_shared<RandomWeights>(seed);
  const Maker make = [weights](const OutTensor& tensor, tensor::DType type, const format::TensorSink& sink) {
    return weights->produce(tensor, type, sink);
  };
  return PlannedFile::plan(std::move(writer), list_tensors(family, *meant), options, make);
}

}  // namespace adze::convert
