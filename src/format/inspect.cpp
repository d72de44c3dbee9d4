#include "format/inspect.hpp"

#include <algorithm>
#include <map>
#include <system_error>

namespace adze::format {
namespace {

constexpr std::size_t kShownElements = 6;    // of an array
constexpr std::size_t kShownBytes = 160;     // of a string
constexpr std::size_t kShownItemBytes = 24;  // of a string in an array

std::string scalar_text(ValueType type, const std::byte* at) {
  const MetadataValue value{type, type, 1, {at, value_type_bytes(type)}};
  const std::string described = describe_value(value);
  return described.substr(described.find(' ') + 1);
}

std::string array_text(const MetadataValue& value) {
  std::string text = "[";
  std::size_t shown = 0;
  const auto add = [&](const std::string& item) { text += (shown++ == 0 ? "" : ", ") + item; };
  if (value.element == ValueType::string) {
    for (const std::string_view item : StringArray(value.bytes, value.count)) {
      if (shown == kShownElements) break;
      add(fmt::format("'{}'", printable(item, kShownItemBytes)));
    }
  } else {
    const std::size_t stride = value_type_bytes(value.element);
    while (shown < std::min<std::uint64_t>(value.count, kShownElements)) {
      add(scalar_text(value.element, value.bytes.data() + shown * stride));
    }
  }
  return text + (value.count > shown ? ", …]" : "]");
}

InspectedKey inspect_key(const Metadata::Entry& entry) {
  const MetadataValue& value = entry.value;
  InspectedKey shown{printable(entry.key), std::string(value_type_name(value.type)), {}, false};
  if (value.type == ValueType::string) {
    shown.value = printable({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()}, kShownBytes);
    shown.is_text = true;
  } else if (value.type == ValueType::array) {
    shown.type = fmt::format("{}[{}]", value_type_name(value.element), value.count);
    shown.value = array_text(value);
    shown.is_text = true;
  } else {
    shown.value = scalar_text(value.type, value.bytes.data());
  }
  return shown;
}

void add_up(FileReport& report) {
  std::map<std::string, TypeTotal> totals;
  for (const InspectedTensor& tensor : report.tensors) {
    std::uint64_t elements = 1;
    for (const std::int64_t dim : tensor.shape) elements *= static_cast<std::uint64_t>(dim);
    TypeTotal& total = totals[tensor.type];
    total.type = tensor.type;
    ++total.tensors;
    total.elements += elements;
    total.bytes += tensor.bytes;
    report.elements += elements;
    report.tensor_bytes += tensor.bytes;
  }
  for (auto& [type, total] : totals) report.totals.push_back(std::move(total));
  std::stable_sort(report.totals.begin(), report.totals.end(),
                   [](const TypeTotal& a, const TypeTotal& b) { return a.bytes > b.bytes; });
}

}  // namespace

FileReport inspect(const GgufFile& file) {
  FileReport report;
  report.format = fmt::format("GGUF version {}", file.shards()[0].version);
  report.architecture = printable(file.architecture());
  report.file_bytes = file.file_bytes();
  for (const GgufShard& shard : file.shards()) report.files.push_back(shard.map.path().filename().string());
  report.metadata = inspect_metadata(file.metadata());
  for (const GgufTensor& tensor : file.tensors()) {
    const auto& shape = tensor.view.shape;
    report.tensors.push_back({printable(tensor.view.name), std::string(tensor::dtype_info(tensor.view.type).name),
                              std::vector<std::int64_t>(shape.dims.begin(), shape.dims.begin() + shape.rank),
                              tensor.view.bytes.size(), tensor.file_offset, tensor.shard});
  }
  add_up(report);
  return report;
}

namespace {

std::vector<std::int64_t> dims_of(const tensor::Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

void add_shard(FileReport& report, const SafetensorsFile& file) {
  const auto index = static_cast<std::uint32_t>(report.files.size());
  report.files.push_back(file.path().filename().string());
  report.file_bytes += file.file_bytes();
  for (const auto& [key, value] : file.metadata()) {
    report.metadata.push_back({printable(key), "string", printable(value, kShownBytes), true});
  }
  for (const SafetensorsTensor& tensor : file.tensors()) {
    report.tensors.push_back({printable(tensor.name), std::string(tensor.dtype), tensor.shape, tensor.bytes.size(),
                              tensor.file_offset, index});
  }
}

}  // namespace

FileReport inspect(const SafetensorsFile& file) {
  FileReport report;
  report.format = "safetensors";
  add_shard(report, file);
  add_up(report);
  return report;
}

FileReport inspect(const SafetensorsFolder& folder, const std::optional<MlxQuantisation>& mlx) {
  FileReport report;
  report.format = mlx ? fmt::format("safetensors folder, {}", mlx->description()) : "safetensors folder";
  for (const SafetensorsFile& shard : folder.shards()) add_shard(report, shard);
  if (mlx) {
    std::erase_if(report.tensors, [&](InspectedTensor& shown) {
      const SafetensorsTensor& tensor = *folder.find(shown.name);
      if (MlxQuantisation::codes_of(tensor, folder) != nullptr) return true;
      if (!MlxQuantisation::is_codes(tensor)) return false;
      if (const auto weight = mlx->weight(tensor, folder)) {
        shown.type = tensor::type_name(*weight);
        shown.shape = dims_of(weight->shape);
        shown.bytes = weight->size_bytes();
      }
      return false;
    });
  }
  report.metadata.clear();  // says who wrote each shard; the model's own settings are in config.json
  add_up(report);
  return report;
}

std::vector<InspectedKey> inspect_metadata(const Metadata& metadata) {
  std::vector<InspectedKey> keys;
  for (const Metadata::Entry& entry : metadata.entries()) keys.push_back(inspect_key(entry));
  return keys;
}

Result<FileReport> inspect(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    ADZE_TRY(const SafetensorsFolder folder, SafetensorsFolder::open(path));
    return inspect(folder);
  }
  // A safetensors file by its name or its ninth byte; anything else is the GGUF reader's to accept or to name.
  ADZE_TRY(const MappedFile whole, MappedFile::open(path));
  const auto first = whole.bytes().first(std::min<std::size_t>(whole.bytes().size(), 9));
  const std::string_view head(reinterpret_cast<const char*>(first.data()), first.size());
  if (!head.starts_with("GGUF") && (path.extension() == ".safetensors" || (head.size() == 9 && head[8] == '{'))) {
    ADZE_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
    return inspect(file);
  }
  ADZE_TRY(const GgufFile file, GgufFile::open(path));
  return inspect(file);
}

}  // namespace adze::format
