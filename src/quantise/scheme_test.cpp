// Types per tensor, as llama.cpp's llama-quantize chooses them (checked against the program; docs/design).
#include "quantise/scheme.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace adze::quantise {
namespace {

using tensor::DType;
using ::testing::HasSubstr;

tensor::Shape shape(std::initializer_list<std::int64_t> dims) {
  tensor::Shape made;
  for (const std::int64_t dim : dims) made.dims[static_cast<std::size_t>(made.rank++)] = dim;
  return made;
}

// The tensors of a model, and what a mix makes of them.
class Model {
 public:
  explicit Model(ModelTraits traits) : traits_(std::move(traits)) {}
  void add(std::string name, tensor::Shape of) { tensors_.emplace_back(std::move(name), of); }

  std::map<std::string, DType> types(const Scheme& scheme) const {
    std::vector<TensorEntry> entries;
    for (const auto& [name, of] : tensors_) entries.push_back({name, DType::bf16, of});
    const auto choices = choose_types(scheme, traits_, entries);
    std::map<std::string, DType> types;
    for (std::size_t i = 0; i < choices.size(); ++i) types[tensors_[i].first] = choices[i].type;
    return types;
  }
  std::map<std::string, DType> types(std::string_view mix) const { return types(Scheme{.mix = find_mix(mix).value()}); }

 private:
  ModelTraits traits_;
  std::vector<std::pair<std::string, tensor::Shape>> tensors_;
};

// 16 layers; in a file the tenth comes after the second, as names sort.
Model dense(std::int64_t layers = 16, std::int64_t queries_per_key = 4, bool tied = false) {
  Model model({.architecture = "llama", .layers = layers, .experts = 0, .query_heads_per_key = queries_per_key});
  model.add("token_embd.weight", shape({1000, 512}));
  if (!tied) model.add("output.weight", shape({1000, 512}));
  for (std::int64_t i = layers - 1; i >= 0; --i) {
    model.add(fmt::format("blk.{}.attn_norm.weight", i), shape({512}));
    model.add(fmt::format("blk.{}.attn_q.weight", i), shape({512, 512}));
    model.add(fmt::format("blk.{}.attn_k.weight", i), shape({128, 512}));
    model.add(fmt::format("blk.{}.attn_v.weight", i), shape({128, 512}));
    model.add(fmt::format("blk.{}.attn_output.weight", i), shape({512, 512}));
    model.add(fmt::format("blk.{}.ffn_down.weight", i), shape({512, 1536}));
    model.add(fmt::format("blk.{}.ffn_up.weight", i), shape({1536, 512}));
  }
  return model;
}

TEST(Scheme, NamesAreThoseOfFilesInEitherCase) {
  EXPECT_EQ(find_mix("q4_k_m").value()->file_type, 15u);
  EXPECT_EQ(find_mix("Q4_K").value()->name, "Q4_K_M");
  EXPECT_EQ(find_mix("mxfp4").value()->name, "MXFP4_MOE");
  EXPECT_EQ(find_weight_type("iq4_xs").value(), DType::iq4_xs);
  EXPECT_THAT(find_mix("Q4_K_X").error().message, HasSubstr("'Q4_K_X' is no type"));
  EXPECT_THAT(find_mix("Q4_K_X").error().hint, HasSubstr("Q4_K_M"));
  EXPECT_FALSE(find_weight_type("i32"));
}

TEST(Scheme, Q4_K_MGivesTheEndsAndEveryThirdLayerMore) {
  const auto types = dense().types("Q4_K_M");
  EXPECT_EQ(types.at("output.weight"), DType::q6_k);
  EXPECT_EQ(types.at("token_embd.weight"), DType::q4_k);
  EXPECT_EQ(types.at("blk.0.attn_norm.weight"), DType::bf16);
  for (const int layer : {0, 1, 4, 7, 10, 13, 14, 15}) {
    EXPECT_EQ(types.at(fmt::format("blk.{}.attn_v.weight", layer)), DType::q6_k) << layer;
    EXPECT_EQ(types.at(fmt::format("blk.{}.ffn_down.weight", layer)), DType::q6_k) << layer;
  }
  for (const int layer : {2, 3, 5, 6, 8, 9, 11, 12}) {
    EXPECT_EQ(types.at(fmt::format("blk.{}.attn_v.weight", layer)), DType::q4_k) << layer;
    EXPECT_EQ(types.at(fmt::format("blk.{}.ffn_down.weight", layer)), DType::q4_k) << layer;
  }
}

TEST(Scheme, ATiedEmbeddingCountsAsTheOutput) {
  EXPECT_EQ(dense(16, 4, true).types("Q4_K_M").at("token_embd.weight"), DType::q6_k);
  EXPECT_EQ(dense(16, 4, true).types("Q8_0").at("token_embd.weight"), DType::q8_0);
  EXPECT_EQ(
      dense(16, 4, true).types(Scheme{.mix = find_mix("Q4_0").value(), .output = DType::q5_1}).at("token_embd.weight"),
      DType::q5_1);
}

// Whatever decides about the other matrices, and before overrides, tied or not.
TEST(Scheme, TheTypeOfTheOutputIsTheOneAskedFor) {
  for (const bool tied : {false, true}) {
    const char* output = tied ? "token_embd.weight" : "output.weight";
    const auto type_of = [&](Scheme scheme) {
      scheme.output = DType::q5_1;
      return dense(16, 4, tied).types(scheme).at(output);
    };
    EXPECT_EQ(type_of({.mix = find_mix("Q4_K_M").value()}), DType::q5_1) << output;
    EXPECT_EQ(type_of({.mix = find_mix("Q4_K_M").value(), .pure = true}), DType::q5_1) << output;
    EXPECT_EQ(type_of({.mix = find_mix("F16").value()}), DType::q5_1) << output;
    EXPECT_EQ(type_of({.mix = find_mix("Q4_0").value(), .overrides = {{"*", DType::q8_0}}}), DType::q5_1) << output;
  }
  const Scheme both{.mix = find_mix("BF16").value(), .token_embedding = DType::q8_0, .output = DType::q5_1};
  EXPECT_EQ(dense(16, 4, true).types(both).at("token_embd.weight"), DType::q8_0);
  EXPECT_EQ(dense(16, 4, false).types(both).at("output.weight"), DType::q5_1);
}

TEST(Scheme, Q3AndQ2DependOnTheSharingOfKeys) {
  const auto large = dense(32, 4).types("Q3_K_M");
  EXPECT_EQ(large.at("blk.0.attn_v.weight"), DType::q5_k);
  EXPECT_EQ(large.at("blk.1.attn_v.weight"), DType::q5_k);
  EXPECT_EQ(large.at("blk.2.attn_v.weight"), DType::q4_k);
  EXPECT_EQ(large.at("blk.1.ffn_down.weight"), DType::q5_k);
  EXPECT_EQ(large.at("blk.2.ffn_down.weight"), DType::q4_k);
  EXPECT_EQ(large.at("blk.2.attn_output.weight"), DType::q4_k);
  EXPECT_EQ(large.at("blk.2.ffn_up.weight"), DType::q3_k);
  EXPECT_EQ(dense(16, 4).types("Q2_K").at("blk.5.attn_v.weight"), DType::q4_k);
  EXPECT_EQ(dense(16, 2).types("Q2_K").at("blk.5.attn_v.weight"), DType::q3_k);
  EXPECT_EQ(dense(16, 4).types("IQ4_XS").at("blk.5.attn_v.weight"), DType::q5_k);
  EXPECT_EQ(dense(16, 1).types("IQ4_XS").at("blk.5.attn_v.weight"), DType::iq4_xs);
}

TEST(Scheme, AnImportanceMatrixChangesTheFirstLayers) {
  Scheme scheme{.mix = find_mix("Q4_0").value()};
  EXPECT_EQ(dense().types(scheme).at("blk.0.ffn_down.weight"), DType::q4_0);
  scheme.has_importance = true;
  EXPECT_EQ(dense().types(scheme).at("blk.0.ffn_down.weight"), DType::q4_1);
  EXPECT_EQ(dense().types(scheme).at("blk.2.ffn_down.weight"), DType::q4_0);
  scheme.mix = find_mix("IQ4_NL").value();
  EXPECT_EQ(dense().types(scheme).at("blk.0.ffn_down.weight"), DType::iq4_nl);
}

TEST(Scheme, ExpertsHaveTheLayerOfTheirName) {
  Model model({.architecture = "llama", .layers = 16, .experts = 8, .query_heads_per_key = 4});
  model.add("output.weight", shape({1000, 512}));
  for (const int layer : {0, 2, 3}) {
    model.add(fmt::format("blk.{}.ffn_down_exps.weight", layer), shape({8, 512, 512}));
    model.add(fmt::format("blk.{}.ffn_gate_inp.weight", layer), shape({8, 512}));
    model.add(fmt::format("blk.{}.attn_v.weight", layer), shape({128, 512}));
    model.add(fmt::format("blk.{}.attn_output.weight", layer), shape({512, 512}));
  }
  const auto types = model.types("Q4_K_M");
  EXPECT_EQ(types.at("blk.0.ffn_down_exps.weight"), DType::q6_k);
  EXPECT_EQ(types.at("blk.2.ffn_down_exps.weight"), DType::q4_k);
  EXPECT_EQ(types.at("blk.2.ffn_gate_inp.weight"), DType::bf16);
  EXPECT_EQ(types.at("blk.3.attn_v.weight"), DType::q8_0);
  EXPECT_EQ(types.at("blk.3.attn_output.weight"), DType::q5_k);
  const auto mxfp4 = model.types("MXFP4");
  EXPECT_EQ(mxfp4.at("blk.2.ffn_down_exps.weight"), DType::mxfp4);
  EXPECT_EQ(mxfp4.at("blk.2.attn_v.weight"), DType::q8_0);
}

TEST(Scheme, RowsThatABlockDoesNotDivideGetShorterBlocks) {
  Model model({.architecture = "llama", .layers = 2, .experts = 0, .query_heads_per_key = 1});
  model.add("output.weight", shape({1000, 96}));
  model.add("blk.0.attn_q.weight", shape({96, 96}));
  model.add("blk.0.attn_k.weight", shape({96, 40}));
  model.add("blk.0.ssm_conv1d.weight", shape({96, 4}));
  const auto types = model.types("Q4_K_S");
  EXPECT_EQ(types.at("output.weight"), DType::q8_0);
  EXPECT_EQ(types.at("blk.0.attn_q.weight"), DType::q5_0);
  EXPECT_EQ(types.at("blk.0.attn_k.weight"), DType::f16);
  EXPECT_EQ(types.at("blk.0.ssm_conv1d.weight"), DType::bf16);
  EXPECT_EQ(model.types("Q3_K_S").at("blk.0.attn_q.weight"), DType::q4_0);
  EXPECT_EQ(model.types("IQ4_XS").at("blk.0.attn_q.weight"), DType::iq4_nl);
}

TEST(Scheme, OverridesComeFirstAndPureHasNoRules) {
  Scheme scheme{.mix = find_mix("Q4_K_M").value(), .pure = true};
  EXPECT_EQ(dense().types(scheme).at("output.weight"), DType::q4_k);
  EXPECT_EQ(dense().types(scheme).at("blk.0.ffn_down.weight"), DType::q4_k);
  scheme = {.mix = find_mix("Q4_K_M").value(), .overrides = {{"ffn_down", DType::q8_0}, {"blk.?.attn_*", DType::q5_k}}};
  const auto types = dense().types(scheme);
  EXPECT_EQ(types.at("blk.2.ffn_down.weight"), DType::q8_0);
  EXPECT_EQ(types.at("blk.2.attn_v.weight"), DType::q5_k);
  EXPECT_EQ(types.at("blk.12.attn_v.weight"), DType::q4_k);
}

TEST(Scheme, PatternsWithStarsAreForTheWholeName) {
  EXPECT_TRUE(matches("attn_v", "blk.0.attn_v.weight"));
  EXPECT_TRUE(matches("blk.*.ffn_*.weight", "blk.10.ffn_down_exps.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_FALSE(matches("attn_*", "blk.0.attn_v.weight"));
  EXPECT_FALSE(matches("blk.?.x", "blk.10.x"));
  EXPECT_FALSE(matches("*a*b*c", "aXbX"));
}

}  // namespace
}  // namespace adze::quantise
