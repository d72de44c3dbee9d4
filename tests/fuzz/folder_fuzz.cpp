// The JSON files of a model folder on arbitrary bytes. The first byte says which file it is: the index of the shards,
// config.json (imported, and read by its family) or generation_config.json.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/mlx_quantisation.hpp"
#include "format/safetensors_folder.hpp"
#include "model/huggingface/import.hpp"
#include "model/registry.hpp"

namespace {

using namespace adze;

template <class T>
bool refused(const Result<T>& result) {
  if (!result && result.error().message.empty()) std::abort();
  return !result;
}

void read_index(std::string_view text) {
  const auto index = format::parse_safetensors_index(text);
  if (refused(index)) return;
  for (const auto& [tensor, file] : index->weight_map) {
    if (!file.ends_with(".safetensors") || file.find('/') != file.npos) std::abort();
  }
}

void read_config(std::string_view text) {
  const auto json = format::JsonObject::parse(text, "config.json");
  if (refused(json)) return;
  if (format::MlxQuantisation::describes(*json)) {
    const auto mlx = format::MlxQuantisation::parse(*json);
    if (!refused(mlx) && mlx->description().empty()) std::abort();
  }
  format::GgufWriter out;
  const auto imported = model::import_config(*json, out);
  if (refused(imported)) return;
  const std::string bytes = out.to_bytes();
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(bytes)), "fuzz");
  if (!file) std::abort();  // what the importer writes can be read
  const model::Family* family = model::find_family(imported->architecture);
  if (family == nullptr) std::abort();
  refused(
      family->config(model::ConfigReader(file->metadata(), imported->architecture, format::StoreFormat::safetensors)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'i') read_index(text);
  if (data[0] == 'c') read_config(text);
  if (data[0] == 'g') {
    if (const auto json = format::JsonObject::parse(text, "generation_config.json")) {
      format::GgufWriter out;
      std::vector<std::pair<std::string, std::string>> sources;
      refused(model::import_generation_config(*json, out, sources));
    }
  }
  return 0;
}
