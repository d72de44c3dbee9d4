// model-manifest.json on arbitrary bytes, against a small model of random weights.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "convert/synth.hpp"
#include "model/manifest.hpp"
#include "model/model.hpp"

namespace {

using namespace adze;

struct Small {
  std::string bytes;
  Result<model::Model> model;
};

Small make() {
  constexpr std::string_view kConfig = R"({"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 258})";
  const auto planned = convert::plan_synthesis(kConfig, "fuzz", 0, {});
  if (!planned) std::abort();
  Small small{planned->to_bytes(), fail(ErrorCode::io, "")};
  auto file = format::GgufFile::parse(std::as_bytes(std::span(small.bytes.data(), small.bytes.size())), "fuzz");
  if (!file) std::abort();
  small.model = model::Model::load(model::ModelSource{.store = format::WeightStore(std::move(*file))});
  if (!small.model) std::abort();
  return small;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Small small = make();
  const model::Model& model = *small.model;
  const model::ManifestSource source = model.manifest_source();
  static const std::string right = model::write_manifest(source).value();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Status checked = model::check_manifest(source, text, "manifest", model::ManifestCheck::bytes);
  if (!checked && checked.error().message.empty()) std::abort();
  if (!model::check_manifest(source, right, "manifest", model::ManifestCheck::bytes)) std::abort();
  return 0;
}
