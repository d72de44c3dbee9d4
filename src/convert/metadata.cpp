#include "convert/metadata.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "format/gguf.hpp"
#include "model/hyperparameter_fields.hpp"

namespace adze::convert {
namespace {

using format::MetadataValue;
using format::ValueType;

// Other readers want unsigned sizes, and one number where all layers have the same.
void add_sizes(std::string_view key, const MetadataValue& value, const format::Metadata& from,
               format::GgufWriter& out) {
  std::vector<std::int64_t> numbers;
  if (value.type == ValueType::array) {
    numbers = from.get_integers(key).value().to_vector();
  } else {
    numbers.push_back(from.get_i64(key).value());
  }
  const bool all_same = std::ranges::count(numbers, numbers.front()) == std::ssize(numbers);
  const bool is_list = key.ends_with(".dimension_sections");
  if (all_same && !is_list && numbers.front() >= 0) {
    out.add_u32(key, static_cast<std::uint32_t>(numbers.front()));
    return;
  }
  std::vector<std::int32_t> narrow;
  for (const std::int64_t number : numbers) narrow.push_back(static_cast<std::int32_t>(number));
  out.add_i32s(key, narrow);
}

std::string rounded(std::int64_t count) {
  constexpr std::array<std::pair<double, char>, 4> kScales{{{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}}};
  const auto value = static_cast<double>(count);
  for (const auto& [scale, suffix] : kScales) {
    if (value <= scale && suffix != 'K') continue;
    const double scaled = value / scale;
    const double whole = std::nearbyint(scaled);
    const int digits = whole < 1.0 ? 0 : whole < 10.0 ? 1 : 2;  // of the two that are shown
    return fmt::format("{:.{}f}{}", scaled, 2 - digits, suffix);
  }
  return {};
}

}  // namespace

void add_metadata(const format::Metadata& imported, const model::Hyperparameters& p, format::GgufWriter& out) {
  const auto full = [&](std::string_view key) { return fmt::format("{}.{}", p.architecture, key); };
  // The factors of this scaling are a tensor in GGUF.
  const bool llama3 = p.rope.scaling == model::RopeScaling::llama3;
  for (const auto& [key, value] : imported.entries()) {
    // What only a folder needs said: in a GGUF file the tensors say it.
    if (key.starts_with(full(model::kFolderKeys)) || key == full("tie_word_embeddings")) continue;
    if (llama3 && key.starts_with(full("rope.scaling."))) continue;
    const bool is_list_of_sizes =
        value.type == ValueType::array && format::is_integer(value.element) && value.count > 0;
    if (format::is_integer(value.type) || is_list_of_sizes) {
      add_sizes(key, value, imported, out);
    } else {
      out.add_value(key, value);
    }
  }
  if (!imported.has("general.type")) out.add_string("general.type", "model");
  if (!imported.has(full("rope.dimension_count")))
    out.add_u32(full("rope.dimension_count"), static_cast<std::uint32_t>(p.rope.dims));
}

std::string size_label(const ParameterCount& count) {
  if (count.expert_count == 0) return rounded(count.total());
  return fmt::format("{}x{}", count.expert_count, rounded(count.shared + count.experts / count.expert_count));
}

namespace {

// Settings that a GGUF file's tensors say or make up for: rows are in another order, a part is there or not.
constexpr std::string_view kOfTensors[] = {
    "interleaved",      "turned_pairs",        "short_factors", "long_factors",      "values",
    "attention_biases", "feed_forward_biases", "tied_output",   "value_heads_tiled", "gates_by_key_head"};
// What llama3 says, for which GGUF has factors in a tensor.
constexpr std::string_view kOfLlama3[] = {"rope.scaling", "rope.factor", "rope.original_context",
                                          "rope.low_frequency_factor", "rope.high_frequency_factor"};

// The first setting in which two readings of a model differ, other than those; empty: none.
std::string first_difference(const model::Hyperparameters& a, const model::Hyperparameters& b) {
  const bool llama3 = a.rope.scaling == model::RopeScaling::llama3 && b.rope.scaling == model::RopeScaling::none;
  const auto compare = [&](const std::vector<model::Field>& x, const std::vector<model::Field>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::string_view name = x[i].name, own = name.substr(name.find('.') + 1);
      if (x[i] == y[i] || std::ranges::find(kOfTensors, own) != std::end(kOfTensors)) continue;
      if (!llama3 || std::ranges::find(kOfLlama3, name) == std::end(kOfLlama3)) return std::string(name);
    }
    return std::string();
  };
  std::string lost = compare(fields_of(a), fields_of(b));
  for (std::size_t i = 0; lost.empty() && i < a.layers.size(); ++i) {  // as many in both: "layers" is a field
    lost = compare(fields_of(a.layers[i]), fields_of(b.layers[i]));
    if (!lost.empty()) return fmt::format("the {} of layer {}", lost, i);
  }
  return lost;
}

}  // namespace

Result<model::Hyperparameters> read_back(const format::GgufWriter& written, const model::Family& family,
                                         const model::Hyperparameters& meant) {
  const std::string bytes = written.to_bytes();
  ADZE_TRY(const format::GgufFile file,
           format::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "the converted metadata"));
  ADZE_TRY(model::Hyperparameters read,
           family.config(model::ConfigReader(file.metadata(), meant.architecture, format::StoreFormat::gguf)));
  read.architecture = meant.architecture;
  const std::string lost = first_difference(meant, read);
  if (lost.empty()) return read;
  return fail(ErrorCode::unsupported_feature,
              fmt::format("a GGUF file of this family cannot say what config.json says about {}", lost),
              "run the folder as it is: Adze reads config.json itself");
}

}  // namespace adze::convert
