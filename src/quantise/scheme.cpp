#include "quantise/scheme.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/check.hpp"

namespace adze::quantise {
namespace {

using tensor::DType;

constexpr Mix kMixes[] = {
    {MixId::f32, "F32", DType::f32, 0, "32 bits per weight"},
    {MixId::bf16, "BF16", DType::bf16, 32, "16 bits, the range of F32"},
    {MixId::f16, "F16", DType::f16, 1, "16 bits"},
    {MixId::q8_0, "Q8_0", DType::q8_0, 7, "8.5 bits, next to no loss"},
    {MixId::q6_k, "Q6_K", DType::q6_k, 18, "6.6 bits"},
    {MixId::q5_k_m, "Q5_K_M", DType::q5_k, 17, "5.7 bits: Q5_K, half of attention's values and of ffn_down in Q6_K"},
    {MixId::q5_k_s, "Q5_K_S", DType::q5_k, 16, "5.5 bits"},
    {MixId::q5_1, "Q5_1", DType::q5_1, 9, "6 bits, blocks of 32"},
    {MixId::q5_0, "Q5_0", DType::q5_0, 8, "5.5 bits, blocks of 32"},
    {MixId::q4_k_m, "Q4_K_M", DType::q4_k, 15, "4.8 bits: Q4_K, half of attention's values and of ffn_down in Q6_K"},
    {MixId::q4_k_s, "Q4_K_S", DType::q4_k, 14, "4.6 bits: Q4_K, the first layers in Q5_K"},
    {MixId::q4_1, "Q4_1", DType::q4_1, 3, "5 bits, blocks of 32"},
    {MixId::q4_0, "Q4_0", DType::q4_0, 2, "4.5 bits, blocks of 32"},
    {MixId::iq4_nl, "IQ4_NL", DType::iq4_nl, 25, "4.5 bits on a curve, blocks of 32"},
    {MixId::iq4_xs, "IQ4_XS", DType::iq4_xs, 30, "4.3 bits on a curve"},
    {MixId::mxfp4_moe, "MXFP4_MOE", DType::mxfp4, 38, "experts in MXFP4 (4.25 bits), the rest in Q8_0"},
    {MixId::q3_k_l, "Q3_K_L", DType::q3_k, 13, "4.3 bits: Q3_K, much of it in Q5_K"},
    {MixId::q3_k_m, "Q3_K_M", DType::q3_k, 12, "3.9 bits: Q3_K, much of it in Q4_K"},
    {MixId::q3_k_s, "Q3_K_S", DType::q3_k, 11, "3.5 bits"},
    {MixId::q2_k, "Q2_K", DType::q2_k, 10, "3 bits: Q2_K, much of it in Q3_K"},
    {MixId::q2_k_s, "Q2_K_S", DType::q2_k, 21, "2.8 bits; give it an importance matrix"},
};

struct Alias {
  std::string_view name, meaning;
};
constexpr Alias kAliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}, {"MXFP4", "MXFP4_MOE"}};

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

// Matrices that stay as they are: parts of a name. Routers decide, convolutions are a few values per channel, and the
// others are small and used by every layer.
constexpr std::string_view kKept[] = {
    "_norm.weight", "ffn_gate_inp.weight",   "altup",         "laurel",       "per_layer_model_proj",
    "ssm_conv1d",   "shortconv.conv.weight", "position_embd", "token_types.", "attn_rel_b.weight",
};

enum class Role : std::uint8_t {
  output,
  token_embedding,
  attention_values,  // also where queries, keys and values are one matrix
  attention_keys,
  attention_output,
  ffn_down,
  other,
};

Role role_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name == "output.weight") return Role::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Role::token_embedding;
  if (has("attn_qkv.weight") || has("attn_kv_b.weight") || has("attn_v.weight")) return Role::attention_values;
  if (has("attn_k.weight")) return Role::attention_keys;
  if (has("attn_output.weight")) return Role::attention_output;
  if (has("ffn_down")) return Role::ffn_down;
  return Role::other;
}

// The N of "blk.N."; nothing for a tensor of no layer.
std::optional<std::int64_t> layer_of(std::string_view name) {
  if (!name.starts_with("blk.")) return std::nullopt;
  std::int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  if (error != std::errc{} || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

// Dimensions that count: leading ones do not.
int rank_of(const tensor::Shape& shape) {
  int first = 0;
  while (first < shape.rank && shape[first] == 1) ++first;
  return shape.rank - first;
}

std::int64_t columns_of(const tensor::Shape& shape) { return shape.rank == 0 ? 1 : shape[shape.rank - 1]; }
bool is_stacked(const tensor::Shape& shape) { return shape.rank > 2 && shape[shape.rank - 3] > 1; }

bool divides(DType type, std::int64_t columns) { return columns % tensor::dtype_info(type).block_elements == 0; }

// The first and last eighth of the layers, and every third in between.
bool deserves_more(std::int64_t layer, std::int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// The next type with blocks of 32 for a row that 256 does not divide: one with more bits, as none has as many.
DType with_short_blocks(DType type) {
  switch (type) {
    case DType::q2_k:
    case DType::q3_k: return DType::q4_0;
    case DType::q4_k: return DType::q5_0;
    case DType::q5_k: return DType::q5_1;
    case DType::q6_k: return DType::q8_0;
    case DType::iq4_xs: return DType::iq4_nl;
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
    case DType::f64:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q5_1:
    case DType::q8_0:
    case DType::iq4_nl:
    case DType::mxfp4:
    case DType::mlx_2:
    case DType::mlx_3:
    case DType::mlx_4:
    case DType::mlx_5:
    case DType::mlx_6:
    case DType::mlx_8:
    case DType::mlx_mxfp4: return type;
  }
  return type;
}

TypeChoice fit_to_columns(DType type, std::int64_t columns) {
  if (divides(type, columns)) return {type, false};
  const DType shorter = with_short_blocks(type);
  return {divides(shorter, columns) ? shorter : DType::f16, true};
}

// Walks a model's tensors in the order of its layers and counts what the rules count.
class Rules {
 public:
  Rules(const Scheme& scheme, const ModelTraits& traits, std::span<const TensorEntry> tensors)
      : scheme_(scheme), mix_(scheme.mix->id), base_(scheme.mix->base), traits_(traits) {
    for (const TensorEntry& tensor : tensors) {
      const Role role = role_of(tensor.name);
      if (role == Role::attention_values) ++value_count_;
      if (role == Role::output) tied_ = false;
    }
  }

  TypeChoice choose(const TensorEntry& tensor) {
    if (!is_quantised(tensor)) return {tensor.type};
    const Role role = role_of(tensor.name);
    const auto named = std::ranges::find_if(
        scheme_.overrides, [&](const TypeOverride& override) { return matches(override.pattern, tensor.name); });
    const bool overridden = named != scheme_.overrides.end();
    // The per-layer table is far larger than the other one, so an override may name it.
    const bool own_choice = overridden && tensor.name == "per_layer_token_embd.weight";
    if (const auto asked = asked_for(role); asked && !own_choice)
      return fit_to_columns(*asked, columns_of(tensor.shape));
    if (!tensor::is_block_type(base_) && !overridden) return {base_};
    DType type = base_;
    if (overridden) {
      type = named->type;
    } else if (!scheme_.pure) {
      type = by_role(role, tensor);
    }
    return fit_to_columns(type, columns_of(tensor.shape));
  }

 private:
  bool is(std::initializer_list<MixId> ids) const { return std::ranges::find(ids, mix_) != ids.end(); }
  bool is_output(Role role) const { return role == Role::output || (tied_ && role == Role::token_embedding); }
  // The type that was given to a tensor's role by an option of its own.
  std::optional<DType> asked_for(Role role) const {
    if (role == Role::token_embedding && scheme_.token_embedding) return scheme_.token_embedding;
    return is_output(role) ? scheme_.output : std::nullopt;
  }
  bool many_queries_per_key() const { return traits_.query_heads_per_key >= 4; }
  bool eight_experts() const { return traits_.experts == 8; }

  DType by_role(Role role, const TensorEntry& tensor) {
    if (is_output(role)) return output_type(tensor);
    if (mix_ == MixId::mxfp4_moe) return is_stacked(tensor.shape) ? DType::mxfp4 : DType::q8_0;
    switch (role) {
      case Role::attention_values: return values_type(value_index_++);
      case Role::attention_keys: return eight_experts() ? DType::q8_0 : base_;
      case Role::attention_output: return attention_output_type();
      case Role::ffn_down: {
        const std::int64_t counted = down_index_++;
        // Experts may stand in a file in any order, so that with them the name says which layer it is.
        return down_type(traits_.experts > 1 ? layer_of(tensor.name).value_or(counted) : counted);
      }
      case Role::output:
      case Role::token_embedding:
      case Role::other: return base_;
    }
    return base_;
  }

  DType output_type(const TensorEntry& tensor) const {
    if (mix_ == MixId::mxfp4_moe || base_ == DType::q8_0 || !divides(base_, columns_of(tensor.shape))) {
      return DType::q8_0;
    }
    return DType::q6_k;
  }

  DType values_type(std::int64_t index) const {
    DType type = base_;
    if (mix_ == MixId::q2_k) {
      type = many_queries_per_key() ? DType::q4_k : DType::q3_k;
    } else if (mix_ == MixId::q2_k_s && many_queries_per_key()) {
      type = DType::q4_k;
    } else if (mix_ == MixId::q3_k_m) {
      type = index < 2 ? DType::q5_k : DType::q4_k;
    } else if (mix_ == MixId::q3_k_l || (is({MixId::iq4_nl, MixId::iq4_xs}) && many_queries_per_key()) ||
               (mix_ == MixId::q4_k_s && index < 4)) {
      type = DType::q5_k;
    } else if (is({MixId::q4_k_m, MixId::q5_k_m}) && deserves_more(index, value_count_)) {
      type = DType::q6_k;
    }
    // Llama 70B: eight heads share a key, so this matrix is an eighth of the others.
    const bool llama_70b = traits_.architecture == "llama" && traits_.layers == 80 && traits_.query_heads_per_key > 1;
    if (llama_70b && (type == DType::q3_k || type == DType::q4_k)) type = DType::q5_k;
    return eight_experts() ? DType::q8_0 : type;
  }

  DType down_type(std::int64_t layer) const {
    const std::int64_t layers = traits_.layers;
    const bool first_eighth = layer < layers / 8;
    switch (mix_) {
      case MixId::q2_k: return DType::q3_k;
      case MixId::q2_k_s: return first_eighth ? DType::q4_k : base_;
      case MixId::q3_k_m: return layer < layers / 16 ? DType::q5_k : DType::q4_k;
      case MixId::q3_k_l: return DType::q5_k;
      case MixId::q4_k_s: return first_eighth ? DType::q5_k : base_;
      case MixId::q4_k_m:
      case MixId::q5_k_m: return deserves_more(layer, layers) ? DType::q6_k : base_;
      case MixId::iq4_nl:
      case MixId::iq4_xs: return first_eighth && !scheme_.has_importance ? DType::q5_k : base_;
      // Weighted quantisers without a minimum can go astray on the outliers of the first layers.
      case MixId::q4_0: return first_eighth && scheme_.has_importance ? DType::q4_1 : base_;
      case MixId::q5_0: return first_eighth && scheme_.has_importance ? DType::q5_1 : base_;
      case MixId::f32:
      case MixId::f16:
      case MixId::bf16:
      case MixId::q8_0:
      case MixId::q6_k:
      case MixId::q5_k_s:
      case MixId::q5_1:
      case MixId::q4_1:
      case MixId::mxfp4_moe:
      case MixId::q3_k_s: return base_;
    }
    return base_;
  }

  DType attention_output_type() const {
    if (eight_experts()) {
      return is({MixId::q2_k, MixId::q3_k_s, MixId::q3_k_m, MixId::q4_k_s, MixId::q4_k_m, MixId::iq4_nl, MixId::iq4_xs})
                 ? DType::q5_k
                 : base_;
    }
    if (mix_ == MixId::q2_k) return DType::q3_k;
    if (mix_ == MixId::q3_k_m) return DType::q4_k;
    if (mix_ == MixId::q3_k_l) return DType::q5_k;
    return base_;
  }

  const Scheme& scheme_;
  MixId mix_;
  DType base_;
  const ModelTraits& traits_;
  bool tied_ = true;              // the embedding is the output matrix as well
  std::int64_t value_count_ = 0;  // matrices of attention's values
  std::int64_t value_index_ = 0;
  std::int64_t down_index_ = 0;
};

}  // namespace

std::span<const Mix> mixes() { return kMixes; }

Result<const Mix*> find_mix(std::string_view name) {
  std::string wanted = upper_case(name);
  const auto* alias = std::ranges::find(kAliases, wanted, &Alias::name);
  if (alias != std::end(kAliases)) wanted = alias->meaning;
  const auto* found = std::ranges::find(kMixes, wanted, &Mix::name);
  if (found != std::end(kMixes)) return found;
  std::vector<std::string_view> names;
  for (const Mix& mix : kMixes) names.push_back(mix.name);
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' is no type that a model can be quantised to", name),
              fmt::format("The types are {}.", fmt::join(names, ", ")));
}

Result<DType> find_weight_type(std::string_view name) {
  const std::string wanted = upper_case(name);
  std::vector<std::string_view> names;
  for (const tensor::DTypeInfo& info : tensor::all_dtypes()) {
    if (info.quantise == nullptr) continue;
    if (info.name == wanted) return info.type;
    names.push_back(info.name);
  }
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' is no type of a tensor", name),
              fmt::format("The types are {}.", fmt::join(names, ", ")));
}

Result<ModelTraits> ModelTraits::from_metadata(const format::Metadata& metadata) {
  ModelTraits traits;
  ADZE_TRY(const std::string_view architecture, metadata.get_string_or("general.architecture", ""));
  traits.architecture = architecture;
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  ADZE_TRY(traits.layers, metadata.get_i64_or(key("block_count"), 0));
  ADZE_TRY(traits.experts, metadata.get_i64_or(key("expert_count"), 0));
  // One number, or one per layer.
  const auto first = [&](std::string_view name) -> Result<std::int64_t> {
    const std::string full = key(name);
    const format::MetadataValue* value = metadata.find(full);
    if (value == nullptr) return 0;
    if (value->type != format::ValueType::array) return metadata.get_i64(full);
    ADZE_TRY(const auto values, metadata.get_integers(full));
    return values.empty() ? 0 : values[0];
  };
  ADZE_TRY(const std::int64_t heads, first("attention.head_count"));
  const bool has_key_heads = metadata.has(key("attention.head_count_kv"));
  ADZE_TRY(const std::int64_t key_heads, first("attention.head_count_kv"));
  if (!has_key_heads) {
    traits.query_heads_per_key = heads > 0 ? 1 : 0;
  } else if (key_heads > 0) {
    traits.query_heads_per_key = heads / key_heads;
  }
  return traits;
}

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.find_first_of("*?") == std::string_view::npos) return name.find(pattern) != std::string_view::npos;
  // The usual walk: after a mismatch, the last star takes one character more.
  std::size_t p = 0, n = 0;
  std::size_t star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool is_quantised(const TensorEntry& tensor) {
  if (tensor::dtype_info(tensor.type).quantise == nullptr) return false;
  if (rank_of(tensor.shape) < 2 || !tensor.name.ends_with("weight")) return false;
  return std::ranges::none_of(kKept,
                              [&](std::string_view part) { return tensor.name.find(part) != std::string_view::npos; });
}

std::vector<TypeChoice> choose_types(const Scheme& scheme, const ModelTraits& traits,
                                     std::span<const TensorEntry> tensors) {
  ADZE_CHECK(scheme.mix != nullptr, "a scheme without a mix");
  // Rules count layers, so tensors are visited by layer whatever their order in the file is.
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return layer_of(tensors[i].name).value_or(-1); });
  Rules rules(scheme, traits, tensors);
  std::vector<TypeChoice> choices(tensors.size(), TypeChoice{DType::f32});
  for (const std::size_t i : order) choices[i] = rules.choose(tensors[i]);
  return choices;
}

}  // namespace adze::quantise
