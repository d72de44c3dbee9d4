// The safetensors reader on arbitrary bytes: it refuses them with a sentence, or its tensors tile the data exactly.
#include <cstdint>
#include <cstdlib>

#include "format/inspect.hpp"
#include "format/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace adze::format;
  const auto file = SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
  if (!file) {
    if (file.error().message.empty()) std::abort();
    return 0;
  }
  std::uint64_t covered = 0;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    covered += tensor.bytes.size();
    if (file->find(tensor.name) != &tensor) std::abort();
    if (const auto view = tensor.view()) {
      if (view->bytes.size() != static_cast<std::size_t>(view->rows()) * view->row_stride()) std::abort();
    }
  }
  const FileReport report = inspect(*file);
  if (report.tensor_bytes != covered || report.tensors.size() != file->tensors().size()) std::abort();
  return 0;
}
