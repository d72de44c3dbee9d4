#include "golden/oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "format/gguf_writer.hpp"
#include "golden/folder_of_gguf.hpp"

namespace adze::test {
namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  auto json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) throw std::runtime_error("fixture " + path.string() + " is missing or no JSON");
  return json;
}

GreedyText greedy_text(const nlohmann::json& json) {
  return {json.at("tokens").get<std::vector<std::int32_t>>(), json.at("margin").get<std::vector<float>>()};
}

// The folder of a Hugging Face type: as the text model alone is saved, or as a multimodal checkpoint holds it.
std::string_view folder_of(std::string_view type) {
  constexpr std::pair<std::string_view, std::string_view> kFolders[] = {{"HF", "hf"},
                                                                        {"HF_VLM", "hf-vlm-layout"},
                                                                        {"HF_MXFP4", "hf-mxfp4"},
                                                                        {"MLX_4BIT", "mlx-4bit"},
                                                                        {"MLX_8BIT", "mlx-8bit"}};
  const auto* const found = std::ranges::find(kFolders, type, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kFolders) ? std::string_view() : found->second;
}

bool is_float(std::string_view type) { return type == "F32" || type.starts_with("HF") || type.ends_with("BF16"); }

// A file or folder of a model's oracle: in the repository, else among all oracles; empty where it is in neither.
std::filesystem::path find_oracle(const std::filesystem::path& model, const std::filesystem::path& part) {
  std::filesystem::path here = std::filesystem::path(ADZE_TEST_DATA) / "oracles" / model / part;
  if (exists(here)) return here;
  const char* all = std::getenv("ADZE_TEST_ORACLES");
  if (all == nullptr) return {};
  std::filesystem::path there = std::filesystem::path(all) / "models" / model / part;
  return exists(there) ? there : std::filesystem::path{};
}

std::filesystem::path find_gguf(const std::filesystem::path& model, std::string_view type) {
  const std::string file = model.filename().string() + "-" + std::string(type == "F32" ? "BF16" : type) + ".gguf";
  const std::filesystem::path beside = find_oracle(model, file);
  return beside.empty() ? find_oracle(model, std::filesystem::path("gguf") / file) : beside;
}

// The GGUF file that has the model's own weights.
std::filesystem::path find_exact_gguf(const std::filesystem::path& model) {
  const std::filesystem::path floats = find_gguf(model, "BF16");
  return floats.empty() ? find_gguf(model, "MXFP4") : floats;
}

bool is_mlx(std::string_view type) { return type.starts_with("MLX_"); }

// "MLX_4BIT" as the recorded values call it.
std::string_view mlx_key(std::string_view type) { return type == "MLX_4BIT" ? "4bit" : "8bit"; }

std::string key(std::string_view type, std::string_view prompt) {
  return std::string(type) + "." + std::string(prompt);
}

}  // namespace

std::string oracle_row_name(const OracleRow& row) {
  std::string name = std::string(row.model) + "_" + row.type;
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

std::filesystem::path oracle_folder(const std::string& model) {
  return find_oracle(model, "expected.json").parent_path();
}

std::string missing_oracle(const OracleRow& row) {
  const std::filesystem::path folder(folder_of(row.type));
  auto model = !folder.empty() ? find_oracle(row.model, folder / "model.safetensors") : find_gguf(row.model, row.type);
  if (model.empty() && row.type == std::string_view("HF") && !find_oracle(row.model, "hf").empty()) {
    model = find_exact_gguf(row.model);
  }
  if (!model.empty() && !oracle_folder(row.model).empty()) return {};
  return std::string("set ADZE_TEST_ORACLES to the folder of all oracles for ") + row.model + " " + row.type;
}

Oracle::Oracle(const std::filesystem::path& folder)
    : folder_(folder.is_absolute() ? folder : oracle_folder(folder.string())),
      expected_(SafetensorsFixture::open(folder_ / "expected.safetensors")) {
  const auto json = read_json(folder_ / "expected.json");
  for (const auto& [name, prompt] : json.at("prompts").items()) {
    prompts_[name] = prompt.at("ids").get<std::vector<std::int32_t>>();
  }
  if (json.contains("contexts")) json.at("contexts").get_to(contexts_);
  for (const auto& [prompt, text] : json.at("greedy").items()) greedy_[prompt] = greedy_text(text);
  if (exists(folder_ / "expected-quant.safetensors")) {
    quantised_ = SafetensorsFixture::open(folder_ / "expected-quant.safetensors");
  }
  if (exists(folder_ / "expected-quant.json")) {
    const auto quantised = read_json(folder_ / "expected-quant.json");
    for (const auto& [type, value] : quantised.items()) {
      if (value.contains("greedy_p7")) greedy_[key(type, "p7")] = greedy_text(value.at("greedy_p7"));
    }
  }
  if (exists(folder_ / "expected-mlx.safetensors")) {
    mlx_ = SafetensorsFixture::open(folder_ / "expected-mlx.safetensors");
    const auto json_mlx = read_json(folder_ / "expected-mlx.json");
    for (const char* type : {"MLX_4BIT", "MLX_8BIT"}) {
      greedy_[key(type, "p7")] = greedy_text(json_mlx.at(mlx_key(type)).at("greedy_p7"));
    }
  }
  if (exists(folder_ / "expected-int8act.safetensors")) {
    int8_ = SafetensorsFixture::open(folder_ / "expected-int8act.safetensors");
    const auto deviation = read_json(folder_ / "llama_cpp_deviation-int8act.json");
    for (const auto& [type, value] : deviation.items()) {
      for (const auto& [prompt, numbers] : value.items()) {
        if (numbers.is_object()) int8_deviation_[key(type, prompt)] = numbers.at("rel_rms").get<double>();
      }
    }
  }
}

std::filesystem::path Oracle::gguf(std::string_view type) const { return find_gguf(folder_.filename(), type); }

std::filesystem::path Oracle::hugging_face(std::string_view type) const {
  return find_oracle(folder_.filename(), folder_of(type));
}

std::unique_ptr<ModelFolder> Oracle::write_folder() const {
  const auto gguf = model::Model::load(find_exact_gguf(folder_.filename()));
  if (!gguf) throw std::runtime_error(gguf.error().message);
  auto folder = std::make_unique<ModelFolder>("adze_folder_of_" + folder_.filename().string());
  for (const auto& file : std::filesystem::directory_iterator(hugging_face())) {
    std::filesystem::copy_file(file.path(), folder->path() / file.path().filename());
  }
  folder->write_weights("model.safetensors", folder_tensors(*gguf));
  return folder;
}

std::int64_t Oracle::context(const std::string& prompt) const {
  const auto found = contexts_.find(prompt);
  return found == contexts_.end() ? 0 : found->second;
}

// Without numbers for quantised weights, the file's weights are the model's own (gpt-oss was made in MXFP4).
bool Oracle::is_exact(std::string_view type) const { return is_float(type) || (!quantised_ && !is_mlx(type)); }

std::vector<float> Oracle::last_logits(std::string_view type, std::string_view prompt) const {
  if (is_exact(type)) return expected_.floats(std::string(prompt) + ".last_logits");
  if (is_mlx(type)) return mlx_.value().floats(fmt::format("{}.f32.{}.last_logits", mlx_key(type), prompt));
  return quantised_.value().floats(key(type, prompt) + ".last_logits");
}

std::optional<std::vector<float>> Oracle::tight_int8_logits(std::string_view type, std::string_view prompt) const {
  const auto deviation = int8_deviation_.find(key(type, prompt));
  if (is_float(type) || deviation == int8_deviation_.end() || deviation->second >= 1e-5) return std::nullopt;
  return int8_.value().floats(key(type, prompt) + ".last_logits");
}

GreedyText Oracle::greedy(std::string_view type, const std::string& prompt) const {
  const auto text = greedy_.find(is_exact(type) ? prompt : key(type, prompt));
  return text == greedy_.end() ? GreedyText{} : text->second;
}

double rel_rms(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size() || actual.empty()) return HUGE_VAL;
  const auto count = static_cast<double>(expected.size());
  double mean = 0, squares = 0, difference = 0;
  for (const float e : expected) mean += static_cast<double>(e) / count;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = static_cast<double>(expected[i]), d = static_cast<double>(actual[i]) - e;
    squares += (e - mean) * (e - mean);
    difference += d * d;
  }
  return std::sqrt(difference / squares);
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

tensor::Shape matrix(std::int64_t rows, std::int64_t columns) { return {{rows, columns, 1, 1}, 2}; }
tensor::Shape vector(std::int64_t columns) { return {{columns, 1, 1, 1}, 1}; }

GgufVariant::GgufVariant(const std::filesystem::path& base) {
  auto file = format::GgufFile::open(base);
  if (!file) throw std::runtime_error(file.error().message);
  file_ = std::move(*file);
}

GgufVariant& GgufVariant::set(std::string_view name, Number value) {
  keys_.insert_or_assign(std::string(name), std::move(value));
  return *this;
}
GgufVariant& GgufVariant::remove_key(std::string_view name) {
  keys_.insert_or_assign(std::string(name), std::nullopt);
  return *this;
}
GgufVariant& GgufVariant::set_u32(std::string_view name, std::uint32_t value) {
  return set(name, {.kind = Number::Kind::u32, .u32 = value});
}
GgufVariant& GgufVariant::set_f32(std::string_view name, float value) {
  return set(name, {.kind = Number::Kind::f32, .f32 = value});
}
GgufVariant& GgufVariant::set_bool(std::string_view name, bool value) {
  return set(name, {.kind = Number::Kind::boolean, .u32 = value});
}
GgufVariant& GgufVariant::set_string(std::string_view name, std::string_view value) {
  return set(name, {.kind = Number::Kind::string, .string = std::string(value)});
}
GgufVariant& GgufVariant::set_u32s(std::string_view name, const std::vector<std::uint32_t>& values) {
  return set(name, {.kind = Number::Kind::u32s, .string = {}, .u32s = values});
}

GgufVariant& GgufVariant::remove_tensor(std::string_view name) {
  tensors_.insert_or_assign(std::string(name), std::nullopt);
  return *this;
}
GgufVariant& GgufVariant::set_tensor(std::string_view name, tensor::DType type, const tensor::Shape& shape,
                                     std::vector<std::byte> bytes) {
  tensors_.insert_or_assign(std::string(name), Tensor{std::string(name), type, shape, std::move(bytes)});
  return *this;
}
GgufVariant& GgufVariant::set_floats(std::string_view name, const tensor::Shape& shape, std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return set_tensor(name, tensor::DType::f32, shape, {bytes.begin(), bytes.end()});
}

GgufVariant& GgufVariant::widen_to_f32() {
  for (const format::GgufTensor& tensor : file_.tensors()) {
    if (tensor.view.type != tensor::DType::bf16) continue;
    set_floats(tensor.view.name, tensor.view.shape, floats(tensor.view.name));
  }
  return *this;
}

const tensor::TensorView& GgufVariant::tensor(std::string_view name) const {
  const format::GgufTensor* found = file_.find_tensor(name);
  if (found == nullptr) throw std::runtime_error("no tensor " + std::string(name));
  return found->view;
}

std::vector<float> GgufVariant::floats(std::string_view name) const {
  const tensor::TensorView& view = tensor(name);
  std::vector<float> values(static_cast<std::size_t>(view.shape.elements()));
  tensor::dequantise_row(view.type, view.bytes.data(), values.data(), view.shape.elements());
  return values;
}

std::string GgufVariant::to_bytes() const {
  format::GgufWriter writer;
  for (const auto& entry : file_.metadata().entries()) {
    if (keys_.find(entry.key) == keys_.end()) writer.add_value(entry.key, entry.value);
  }
  for (const auto& [name, value] : keys_) {
    if (!value) continue;
    switch (value->kind) {
      case Number::Kind::u32: writer.add_u32(name, value->u32); break;
      case Number::Kind::f32: writer.add_f32(name, value->f32); break;
      case Number::Kind::boolean: writer.add_bool(name, value->u32 != 0); break;
      case Number::Kind::string: writer.add_string(name, value->string); break;
      case Number::Kind::u32s: writer.add_u32s(name, value->u32s); break;
    }
  }
  for (const format::GgufTensor& tensor : file_.tensors()) {
    if (tensors_.find(tensor.view.name) == tensors_.end()) writer.add_tensor(tensor.view);
  }
  for (const auto& [name, tensor] : tensors_) {
    if (tensor) writer.add_tensor(name, tensor->type, tensor->shape, tensor->bytes);
  }
  return writer.to_bytes();
}

Result<model::Model> GgufVariant::load(const model::ModelOptions& options) {
  bytes_ = to_bytes();
  ADZE_TRY(format::GgufFile file, format::GgufFile::parse(std::as_bytes(std::span(bytes_)), "variant"));
  return model::Model::load(model::ModelSource{.store = format::WeightStore(std::move(file))}, options);
}

OracleModel load_oracle(const Oracle& oracle, std::string_view type, const model::ModelOptions& options) {
  OracleModel loaded;
  const auto model = [&] {
    if (!folder_of(type).empty() && !exists(oracle.hugging_face(type) / "model.safetensors")) {
      loaded.folder = oracle.write_folder();
      return model::Model::load(loaded.folder->path(), options);
    }
    if (!folder_of(type).empty()) return model::Model::load(oracle.hugging_face(type), options);
    if (type != "F32") return model::Model::load(oracle.gguf(type), options);
    loaded.variant.emplace(oracle.gguf("BF16"));
    return loaded.variant->widen_to_f32().load(options);
  };
  auto result = model();
  if (!result) throw std::runtime_error(result.error().message);
  loaded.model.emplace(std::move(*result));
  return loaded;
}

OracleModel load_oracle(const Oracle& oracle, std::string_view type, const char* prompt) {
  model::ModelOptions options;
  options.context = oracle.context(prompt);
  return load_oracle(oracle, type, options);
}

}  // namespace adze::test
