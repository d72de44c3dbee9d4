#include "convert/metadata.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "format/gguf.hpp"

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

// The first setting in which two readings of a model differ, other than those that its tensors make up for; empty:
// none.
std::string first_difference(const model::Hyperparameters& a, const model::Hyperparameters& b) {
  const auto differs = [](const model::RopeSettings& x, const model::RopeSettings& y) {
    const bool factors = x.scaling == model::RopeScaling::llama3 && y.scaling == model::RopeScaling::none;
    const bool scaling = x.scaling != y.scaling || x.factor != y.factor || x.beta_fast != y.beta_fast ||
                         x.beta_slow != y.beta_slow || x.original_context != y.original_context;
    return x.dims != y.dims || x.base != y.base || x.round_ramp != y.round_ramp ||
           x.attention_factor != y.attention_factor || (scaling && !factors);
  };
  if (differs(a.rope, b.rope) || differs(a.local_rope, b.local_rope)) return "rope_parameters or rope_scaling";
  if (a.vocabulary_size != b.vocabulary_size || a.hidden_size != b.hidden_size ||
      a.context_length != b.context_length || a.layer_input_size != b.layer_input_size)
    return "vocab_size, hidden_size or max_position_embeddings";
  if (a.norm != b.norm || a.norm_epsilon != b.norm_epsilon) return "rms_norm_eps";
  if (a.attention_scale != b.attention_scale || a.value_norm != b.value_norm || a.position_scale != b.position_scale ||
      a.position_interval != b.position_interval)
    return "the scale of attention";
  if (a.attention_softcap != b.attention_softcap || a.final_softcap != b.final_softcap) return "a soft cap";
  if (a.embedding_scale != b.embedding_scale || a.logit_scale != b.logit_scale)
    return "the scale of embeddings, residuals or logits";
  const auto& m = a.mixture;
  const auto& n = b.mixture;
  if (m.experts != n.experts || m.used != n.used || m.width != n.width || m.shared_width != n.shared_width ||
      m.scoring != n.scoring || m.renormalise != n.renormalise || m.scale != n.scale)
    return "the mixture of experts";
  if (a.layers.size() != b.layers.size()) return "num_hidden_layers";
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const model::LayerParameters& x = a.layers[i];
    const model::LayerParameters& y = b.layers[i];
    const bool same = x.heads == y.heads && x.kv_heads == y.kv_heads && x.head_size == y.head_size &&
                      x.feed_forward == y.feed_forward && x.window == y.window && x.rope == y.rope &&
                      x.kv_source == y.kv_source && x.convolution == y.convolution &&
                      x.delta.key_heads == y.delta.key_heads && x.delta.value_heads == y.delta.value_heads &&
                      x.delta.key_size == y.delta.key_size && x.delta.value_size == y.delta.value_size;
    if (!same) return fmt::format("the sizes or the kind of layer {}", i);
  }
  return {};
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
