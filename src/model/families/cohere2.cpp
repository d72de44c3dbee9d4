// Cohere2 (Command R7B, Command A, Aya Expanse's successors): attention and feed-forward side by side behind one
// LayerNorm (transformers, modeling_cohere2.py).
//
//   h_0     = E[token]
//   x       = layer_norm(h; attn_norm)                       without a bias
//   q, k    = rope(W_q x), rope(W_k x)                       pairs (2i, 2i + 1), in both formats; sliding layers only:
//                                                            every fourth attends to everything, without rope
//   h      += W_o softmax(q k^T / sqrt(d)) v + W_down (silu(W_gate x) * W_up x)
//   logits  = logit_scale E layer_norm(h; output_norm)
#include <algorithm>
#include <array>

#include "base/limits.hpp"
#include "model/families/decoder.hpp"
#include "model/registry.hpp"

namespace adze::model::family {
namespace {

constexpr std::int64_t kPeriod = 4;  // GGUF has no key for it

Result<Hyperparameters> config(const ConfigReader& reader) {
  constexpr std::string_view kKnown[] = {"attention.sliding_window", "logit_scale"};
  ADZE_TRY(Hyperparameters p, decoder_config(reader, kKnown, ops::NormSpec::Kind::layer));
  ADZE_TRY(p.logit_scale, reader.number("logit_scale", {0.0, 1e6}));
  ADZE_TRY(const std::int64_t window, reader.integer("attention.sliding_window", {1, limits::kMaxContext}));
  std::vector<bool> slides;
  for (std::size_t i = 0; i < p.layers.size(); ++i) slides.push_back((i + 1) % kPeriod != 0);
  if (reader.has(folder_key::kSlidingLayers)) {
    ADZE_TRY(slides, reader.flags_per_layer(folder_key::kSlidingLayers, p.layers.size()));
  }
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    p.layers[i].window = slides[i] ? static_cast<int>(window) : 0;
    p.layers[i].rope = slides[i] ? LayerParameters::Rope::main : LayerParameters::Rope::none;
  }
  p.rope.interleaved = true;
  return p;
}

std::vector<TensorRow> tensors(const Hyperparameters&) {
  return join({stem_tensors(),
               {{"blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight", Dim::none, Dim::hidden}},
               attention_tensors(),
               gated_tensors()});
}

void forward(const Hyperparameters& p, const Weights& w, PlanBuilder& plan) {
  DecoderWriter decoder(p, w, plan);
  decoder.embed();
  for (int i = 0; i < p.layer_count(); ++i) {
    decoder.begin_layer(i);
    decoder.norm("blk.*.attn_norm.weight");
    decoder.attention();
    decoder.add_projection("blk.*.attn_output");
    decoder.feed_forward();  // of the same x
    decoder.add_projection("blk.*.ffn_down");
  }
  decoder.head();
}

constexpr std::array<std::string_view, 1> kArchitectures{"cohere2"};

// layer_types, or every sliding_window_pattern-th layer is a full one.
Status import_sliding_layers(ConfigImport& import) {
  ADZE_TRY(const auto layers, import.config().integer("num_hidden_layers"));
  ADZE_TRY(const auto period, import.config().integer("sliding_window_pattern"));
  if (period && *period < 1) return refuse_setting(import, "sliding_window_pattern", "layers in another order");
  const std::int64_t count = std::clamp(layers.value_or(0), std::int64_t{0}, limits::kMaxLayers);
  ADZE_TRY(const std::vector<bool> slides, sliding_layers(import, count, period.value_or(kPeriod)));
  import.write_booleans(folder_key::kSlidingLayers, slides, "layer_types");
  return {};
}

// What is ignored here is ignored by transformers: it has one way to do each.
constexpr ImportRow kRows[] = {number_row("layer_norm_eps", "attention.layer_norm_epsilon", "1e-5"),
                               number_row("logit_scale", "logit_scale", "0.0625"),
                               integer_row("sliding_window", "attention.sliding_window", "4096"),
                               integer_row("max_position_embeddings", "context_length", "8192"),
                               computed_row("layer_types", import_sliding_layers),
                               boolean_row("tie_word_embeddings", "tie_word_embeddings", "true"),
                               ignored_row("sliding_window_pattern"),
                               ignored_row("cache_implementation"),
                               ignored_row("order_of_interleaved_layers"),
                               ignored_row("position_embedding_type"),
                               ignored_row("rms_norm_eps"),  // the norms are no such ones
                               ignored_row("rotary_pct"),
                               ignored_row("use_embedding_sharing"),
                               ignored_row("use_gated_activation"),
                               ignored_row("use_parallel_block"),
                               ignored_row("use_parallel_embedding")};
constexpr std::array<std::string_view, 1> kModelTypes{"cohere2"};
constexpr std::array kImports{FamilyImport{.model_types = kModelTypes, .architecture = "cohere2", .rows = kRows}};

}  // namespace

extern const Family kCohere2;
const Family kCohere2{.name = "cohere2",
                      .architectures = kArchitectures,
                      .summary = "Cohere2: Command R7B, Command A",
                      .config = config,
                      .tensors = tensors,
                      .forward = forward,
                      .imports = kImports};

}  // namespace adze::model::family
