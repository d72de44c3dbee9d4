// A manifest is made from the loaded model, so checking one is making another and comparing: what is not compared
// cannot be said, and nothing that is said goes unchecked.
#include "model/manifest.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <unordered_map>
#include <variant>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/limits.hpp"
#include "format/json.hpp"
#include "model/hyperparameter_fields.hpp"
#include "model/tensor_names.hpp"

namespace adze::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "adze.model-manifest";
constexpr int kMajor = 1;
constexpr std::string_view kVersion = "1.0";
constexpr std::string_view kDigest = "xxh3";
constexpr std::size_t kDigestDigits = 32;

std::string_view kind_of(const LayerParameters& layer) {
  if (layer.heads == 0) return "recurrent";
  return layer.window > 0 ? "sliding" : "full";
}

// A field "rope.base" is the member "base" of the member "rope".
Json json_of(const std::vector<Field>& fields) {
  Json json = Json::object();
  for (const Field& field : fields) {
    const std::size_t dot = field.name.find('.');
    Json& into = dot == field.name.npos ? json : json[field.name.substr(0, dot)];
    into[field.name.substr(dot + 1)] = std::visit([](const auto& value) { return Json(value); }, field.value);
  }
  return json;
}

Json json_of(const LayerParameters& layer) {
  Json json{{"kind", kind_of(layer)}};
  json.update(json_of(fields_of(layer)));
  return json;
}

// Tensor name in the files -> the name that it has in the family's table, for all of the table's tensors.
std::unordered_map<std::string, std::string> roles_of(const ManifestSource& source) {
  std::unordered_map<std::string, std::string> roles;
  const std::vector<TensorRow> rows = source.family.tensors(source.parameters);
  const TensorNames names(source.store, rows);
  for (const TensorRow& row : rows) {
    const bool per_layer = row.gguf.find('*') != std::string_view::npos;
    for (int layer = 0; layer < (per_layer ? source.parameters.layer_count() : 1); ++layer) {
      const std::string name = names.name(row, layer), role = with_layer(row.gguf, layer);
      const std::size_t mark = name.find('#');
      if (mark == name.npos) {
        if (!name.empty()) roles.emplace(name, role);
        continue;
      }
      for (int expert = 0; expert < source.parameters.mixture.experts; ++expert)
        roles.emplace(fmt::format("{}{}{}", name.substr(0, mark), expert, name.substr(mark + 1)),
                      fmt::format("{}[{}]", role, expert));
    }
  }
  return roles;
}

// What the files hold, byte by byte: shards, and tensors in their order.
class Inventory {
 public:
  Inventory(const ManifestSource& source, bool digests) : roles_(roles_of(source)), digests_(digests) {
    if (const format::SafetensorsFolder* folder = source.store.folder()) {
      for (const format::SafetensorsFile& shard : folder->shards()) add(shard);
    } else {
      add(source.store.gguf());
    }
  }
  Json files = Json::array(), tensors = Json::array(), types = Json::object();

 private:
  void add(const format::SafetensorsFile& shard) {
    const std::string file = shard.path().filename().string();
    files.push_back({{"name", file}, {"bytes", shard.file_bytes()}});
    for (const format::SafetensorsTensor& tensor : shard.tensors())
      add(tensor.name, tensor.dtype, Json(tensor.shape), file, tensor.file_offset, tensor.bytes);
  }
  void add(const format::GgufFile& gguf) {
    for (const format::GgufShard& shard : gguf.shards())
      files.push_back({{"name", shard.map.path().filename().string()}, {"bytes", shard.bytes.size()}});
    for (const format::GgufTensor& tensor : gguf.tensors()) {
      const tensor::Shape& shape = tensor.view.shape;
      Json dims = Json::array();
      for (int i = 0; i < shape.rank; ++i) dims.push_back(shape[i]);
      add(tensor.view.name, tensor::dtype_info(tensor.view.type).name, std::move(dims),
          files[tensor.shard]["name"].get<std::string>(), tensor.file_offset, tensor.view.bytes);
    }
  }
  void add(std::string_view name, std::string_view type, Json shape, const std::string& file, std::uint64_t offset,
           std::span<const std::byte> bytes) {
    const auto role = roles_.find(std::string(name));
    Json entry{{"name", format::printable(name, limits::kGgufMaxKeyBytes)},
               {"role", role == roles_.end() ? std::string() : role->second},
               {"type", type},
               {"shape", std::move(shape)},
               {"file", file},
               {"offset", offset},
               {"bytes", bytes.size()}};
    entry[std::string(kDigest)] = digests_ ? Json(to_hex(digest(bytes))) : Json();
    tensors.push_back(std::move(entry));
    Json& total = types[std::string(type)];
    total = (total.is_null() ? 0 : total.get<std::int64_t>()) + 1;
  }

  std::unordered_map<std::string, std::string> roles_;
  bool digests_;
};

Json manifest_of(const ManifestSource& source, bool digests) {
  const Inventory inventory(source, digests);
  Json layers = Json::array();
  for (const LayerParameters& layer : source.parameters.layers) layers.push_back(json_of(layer));
  return {{"schema", kSchema},
          {"version", kVersion},
          {"architecture", source.store.architecture()},
          {"family", source.family.name},
          {"format", source.store.folder() != nullptr ? "safetensors" : "gguf"},
          {"constants", json_of(fields_of(source.parameters))},
          {"layers", std::move(layers)},
          {"quantisation", inventory.types},
          {"files", inventory.files},
          {"tensors", inventory.tensors}};
}

std::string shown(const Json& value) {
  return format::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

class Comparison {
 public:
  explicit Comparison(std::string_view name) : name_(name) {}

  Status compare(const Json& files, const Json& manifest, const std::string& field) const {
    if (files.is_object() && manifest.is_object()) return compare_objects(files, manifest, field);
    if (files.is_array() && manifest.is_array()) {
      if (files.size() != manifest.size())
        return differs(field, fmt::format("has {} entries", manifest.size()), fmt::format("{}", files.size()));
      for (std::size_t i = 0; i < files.size(); ++i)
        ADZE_TRY_STATUS(compare(files[i], manifest[i], fmt::format("{}[{}]", field, i)));
      return {};
    }
    if (files == manifest) return {};
    // A digest that was not computed: the manifest must have one all the same.
    if (files.is_null() && is_digest(manifest)) return {};
    return differs(field, fmt::format("is {}", shown(manifest)), shown(files));
  }

 private:
  static bool is_digest(const Json& value) {
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    return text.size() == kDigestDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
  }

  Status compare_objects(const Json& files, const Json& manifest, const std::string& field) const {
    const auto path = [&](const std::string& key) { return field.empty() ? key : fmt::format("{}.{}", field, key); };
    for (const auto& [key, value] : manifest.items()) {
      if (files.contains(key)) continue;
      return fail(ErrorCode::corrupt_file,
                  fmt::format("{}: the field \"{}\" is none that version {} has", name_, format::printable(path(key)),
                              kVersion),
                  "it may change what the model computes: write the manifest again with adze manifest --force");
    }
    for (const auto& [key, value] : files.items()) {
      const auto found = manifest.find(key);
      if (found == manifest.end()) {
        return fail(ErrorCode::corrupt_file, fmt::format("{}: the field \"{}\" is missing", name_, path(key)),
                    "write the manifest again with adze manifest --force");
      }
      ADZE_TRY_STATUS(compare(value, *found, path(key)));
    }
    return {};
  }

  tl::unexpected<Error> differs(const std::string& field, const std::string& said, const std::string& found) const {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{}: \"{}\" {}, but the model's files say {}", name_, field, said, found),
                "the files are not those that it was written for: get the model again, or, where the files are right, "
                "write the manifest again with adze manifest --force");
  }

  std::string_view name_;
};

Status check_version(const Json& manifest, std::string_view name) {
  const auto text = [&](const char* key) {
    const auto found = manifest.find(key);
    return found != manifest.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (text("schema") != kSchema) {
    return fail(ErrorCode::corrupt_file,
                fmt::format("{}: \"schema\" is not \"{}\", so it is no manifest of Adze's", name, kSchema),
                "move the file away, or write one with adze manifest");
  }
  const std::string version = text("version");
  const std::string major = fmt::format("{}.", kMajor);
  const std::string_view minor = std::string_view(version).substr(std::min(major.size(), version.size()));
  const bool is_number = !minor.empty() && minor.size() < 4 && minor.find_first_not_of("0123456789") == minor.npos;
  if (version.starts_with(major) && is_number) return {};
  return fail(ErrorCode::unsupported_feature,
              fmt::format("{}: its version is {}, and this Adze reads version \"{}\"", name,
                          manifest.contains("version") ? shown(manifest["version"]) : "missing", kVersion),
              "use the Adze that wrote it, or write it again with adze manifest --force");
}

}  // namespace

std::filesystem::path manifest_path(const std::filesystem::path& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) return model / "model-manifest.json";
  return std::filesystem::path(model) += ".manifest.json";
}

Result<std::string> write_manifest(const ManifestSource& source) {
  std::string text = manifest_of(source, true).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (text.size() <= limits::kMaxManifestBytes) return text;
  return fail(ErrorCode::limit_exceeded,
              fmt::format("the manifest of this model would have {} bytes, allowed are {}", text.size(),
                          limits::kMaxManifestBytes),
              "the model runs without one");
}

Status check_manifest(const ManifestSource& source, std::string_view text, std::string_view name, ManifestCheck check) {
  // Bounded in depth, and no field twice.
  ADZE_TRY_STATUS(format::JsonObject::parse(text, std::string(name)).map([](const auto&) {}));
  Json manifest = Json::parse(text, nullptr, false);
  if (!manifest.is_object()) return fail(ErrorCode::corrupt_file, fmt::format("{} is not a JSON object", name));
  ADZE_TRY_STATUS(check_version(manifest, name));
  manifest["version"] = kVersion;
  return Comparison(name).compare(manifest_of(source, check == ManifestCheck::bytes), manifest, "");
}

Status check_manifest_beside(const ManifestSource& source, ManifestCheck check) {
  if (source.store.path().empty()) return {};
  const std::filesystem::path path = manifest_path(source.store.path());
  std::error_code ignored;
  // A link that leads nowhere is no manifest left out: reading it says what is wrong.
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) return {};
  ADZE_TRY(const std::string text, read_model_file(path, limits::kMaxManifestBytes));
  return check_manifest(source, text, path.filename().string(), check);
}

}  // namespace adze::model
