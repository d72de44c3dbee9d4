// The GGUF reader on arbitrary bytes: it refuses them with a sentence, or everything that it hands out can be read.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "format/gguf.hpp"
#include "format/weight_store.hpp"

namespace {

using namespace adze::format;

// Keeps the compiler from dropping the reads that the sanitizers are to judge.
volatile std::uint64_t g_sink = 0;

template <class T>
void touch(const adze::Result<T>& result) {
  if (!result && result.error().message.empty()) std::abort();
}

void read_metadata(const Metadata& metadata) {
  for (const Metadata::Entry& entry : metadata.entries()) {
    if (metadata.find(entry.key) != &entry.value) std::abort();
    g_sink = g_sink + describe_value(entry.value).size() + printable(entry.key).size();
    touch(metadata.get_u64(entry.key));
    touch(metadata.get_i64(entry.key));
    touch(metadata.get_f32(entry.key));
    touch(metadata.get_bool(entry.key));
    touch(metadata.get_i64_per_layer(entry.key, 3));
    if (const auto text = metadata.get_string(entry.key)) g_sink = g_sink + printable(*text).size();
    if (const auto strings = metadata.get_strings(entry.key)) {
      std::size_t count = 0;
      for (const std::string_view text : *strings) {
        ++count;
        for (const char c : text) g_sink = g_sink + static_cast<unsigned char>(c);
      }
      if (count != strings->size()) std::abort();
    }
    if (const auto integers = metadata.get_integers(entry.key)) g_sink = g_sink + integers->to_vector().size();
    if (const auto floats = metadata.get_floats(entry.key)) g_sink = g_sink + floats->to_vector().size();
    if (const auto bools = metadata.get_bools(entry.key)) g_sink = g_sink + bools->to_vector().size();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf");
  touch(file);
  if (!file) return 0;
  read_metadata(file->metadata());
  WeightStore store(std::move(*file));
  for (const adze::tensor::TensorView& view : store.tensors()) {
    if (view.bytes.size() != static_cast<std::size_t>(view.rows()) * view.row_stride()) std::abort();
    g_sink = g_sink + static_cast<std::uint64_t>(view.bytes.front()) + static_cast<std::uint64_t>(view.bytes.back());
    if (!store.require(view.name, view.shape, "fuzz")) std::abort();
  }
  if (!store.unused().empty()) std::abort();
  g_sink = g_sink + store.source_digest().low;
  return 0;
}
