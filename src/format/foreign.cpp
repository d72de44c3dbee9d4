#include "format/foreign.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace adze::format {
namespace {

using std::string_view_literals::operator""sv;

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

bool is_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 10) return false;
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header <= bytes.size() - 8 && static_cast<char>(bytes[8]) == '{';
}

bool is_text(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

// Formats that a fixed first few bytes give away.
struct Magic {
  std::string_view bytes;
  std::string_view what;
  std::string_view hint;
};
constexpr std::string_view kConvert = "convert the model to GGUF first, or download its GGUF file";
constexpr Magic kMagics[] = {
    {"version https://git-lfs"sv, "a git-lfs pointer, not the file it points to",
     "fetch the real file with 'git lfs pull' or download it"},
    {"lmgg"sv, "an old ggml file from before GGUF", kConvert},
    {"tjgg"sv, "an old ggml (ggjt) file from before GGUF", kConvert},
    {"fmgg"sv, "an old ggml (ggmf) file from before GGUF", kConvert},
    {"algg"sv, "an old ggml (ggla) adapter from before GGUF", kConvert},
    {"FUGG"sv, "a GGUF file whose bytes are swapped", "download or copy it again"},
    {"\x80\x02"sv, "a Python pickle (an old PyTorch checkpoint)", kConvert},
    {"\x80\x03"sv, "a Python pickle", kConvert},
    {"\x80\x04"sv, "a Python pickle", kConvert},
    {"\x93NUMPY"sv, "a NumPy array", kConvert},
    {"\x89HDF\r\n"sv, "an HDF5 file", kConvert},
    {"\x1f\x8b"sv, "a gzip archive", "unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "a zstd archive", "unpack it first"},
    {"\x7f"
     "ELF"sv,
     "a program", "give the path of a model file"},
    {"\0\5\x16\7"sv, "a macOS resource file (AppleDouble, '._NAME')", "use the file without the leading '._'"},
};

}  // namespace

ForeignFile recognise_foreign(std::span<const std::byte> bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view head = all.substr(0, 512);
  if (all.empty()) return {"empty", "the download or copy did not finish: fetch it again"};
  for (const Magic& magic : kMagics) {
    if (head.starts_with(magic.bytes)) return {std::string(magic.what), std::string(magic.hint)};
  }
  if (head.starts_with("PK\3\4")) {
    if (head.find("data.pkl") != head.npos) return {"a PyTorch checkpoint (a zip archive)", std::string(kConvert)};
    return {"a zip archive", "unpack it first"};
  }
  if (is_safetensors(bytes)) return {"a safetensors file", "name the folder that holds it and its config.json"};
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  const std::string_view trimmed = first == head.npos ? std::string_view() : head.substr(first);
  if (starts_with_ignoring_case(trimmed, "<!doctype html") || starts_with_ignoring_case(trimmed, "<html")) {
    return {"an HTML page", "the server answered with a web page: check the address, and whether it needs a login"};
  }
  if (trimmed.starts_with('{') && is_text(head)) return {"a JSON text", "give the path of a model file"};
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) {
    return {"a file that starts with zero bytes", "the download did not finish: fetch it again"};
  }
  if (is_text(head)) return {"a text file", "give the path of a model file"};
  return {"a file of an unknown kind", "give the path of a GGUF file"};
}

}  // namespace adze::format
