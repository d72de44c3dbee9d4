#include "convert/shapes.hpp"

#include <algorithm>
#include <array>

namespace adze::convert {
namespace {

constexpr std::array kShapes{
    ModelShape{"llama-3.2-1b",
               R"({"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
"max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true,
"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
"original_max_position_embeddings": 8192}})",
               1.24},
    ModelShape{"llama-3.1-8b",
               R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
"rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
"original_max_position_embeddings": 8192}})",
               8.03},
    ModelShape{"qwen3-0.6b",
               R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
"max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": true})",
               0.60},
    ModelShape{"qwen3-8b",
               R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
"max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": false})",
               8.19},
    ModelShape{
        "qwen3.5-0.8b",
        R"({"model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24,
"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
"max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "tie_word_embeddings": true, "full_attention_interval": 4,
"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
"linear_num_value_heads": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
"partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": true}})",
        0.75},
    ModelShape{
        "qwen3.5-9b",
        R"({"model_type": "qwen3_5_text", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320,
"max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "tie_word_embeddings": false, "full_attention_interval": 4,
"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
"linear_num_value_heads": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
"partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": true}})",
        8.95},
    ModelShape{"gemma-4-e2b",
               R"({"model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
"max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "tie_word_embeddings": true, "sliding_window": 512,
"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 20, "use_double_wide_mlp": true,
"final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh", "layer_types": [
"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
"partial_rotary_factor": 0.25}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})",
               4.65},
    ModelShape{
        "gemma-4-e4b",
        R"({"model_type": "gemma4_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42,
"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
"max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "tie_word_embeddings": true, "sliding_window": 512,
"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 18, "use_double_wide_mlp": false,
"final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh",
"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
"partial_rotary_factor": 0.25}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})",
        7.52},
    // No published model: Qwen3's mixtures, small enough for any machine.
    ModelShape{"qwen3-moe-2b-a0.5b",
               R"({"model_type": "qwen3_moe", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 24,
"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
"max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": true,
"num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 768, "norm_topk_prob": true})",
               2.09},
    ModelShape{"qwen3-30b-a3b",
               R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
"max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": false,
"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true})",
               30.5},
    ModelShape{"gpt-oss-20b",
               R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
"max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "sliding_window": 128,
"num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": 7.0, "rope_theta": 150000,
"rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
"original_max_position_embeddings": 4096}})",
               20.9},
};

}  // namespace

std::span<const ModelShape> model_shapes() { return kShapes; }

const ModelShape* find_shape(std::string_view name) {
  const auto* const found = std::ranges::find(kShapes, name, &ModelShape::name);
  return found == kShapes.end() ? nullptr : found;
}

}  // namespace adze::convert
