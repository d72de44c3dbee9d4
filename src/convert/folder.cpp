#include "convert/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "convert/vocabulary.hpp"
#include "model/huggingface/vocabulary.hpp"

namespace adze::convert {
namespace {

Status check_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  if (path.extension() == ".gguf") {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is a GGUF file already", path.string()),
                fmt::format("to change its types, use adze quantize {} OUT.gguf TYPE", path.string()));
  }
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' is a file, and adze convert reads folders", path.string()),
              "name the folder with config.json, tokenizer.json and the weights");
}

}  // namespace

Result<FolderConversion> plan_conversion(const std::filesystem::path& folder, const WriteOptions& options) {
  ADZE_TRY_STATUS(check_folder(folder));
  ADZE_TRY(model::Model loaded, model::Model::load(folder));
  ADZE_TRY(const text::TokenizerSpec vocabulary, model::tokenizer_spec_from_folder(folder));
  auto model = std::make_unique<const model::Model>(std::move(loaded));
  const model::Hyperparameters& meant = model->hyperparameters();
  auto writer = std::make_unique<format::GgufWriter>();
  add_metadata(model->metadata(), meant, *writer);
  ADZE_TRY(const model::Hyperparameters read, read_back(*writer, model->family(), meant));
  ADZE_TRY(const std::vector<std::string> nameless,
           add_vocabulary(vocabulary, meant.vocabulary_size, meant.architecture, *writer));
  // What has been read is given back at once: a folder larger than memory must not push out everything else.
  const Maker make = [threads = options.threads, &store = model->weights()](const OutTensor& tensor, tensor::DType type,
                                                                            const format::TensorSink& sink) -> Status {
    ADZE_TRY_STATUS(produce(tensor, type, threads, sink));
    if (tensor.from != nullptr) store.release_tensor(tensor.from->name);
    return {};
  };
  ADZE_TRY(PlannedFile file,
           PlannedFile::plan(std::move(writer), list_tensors(model->family(), model->named_weights(), meant, read),
                             options, make));
  std::vector<std::string> notes;
  if (!nameless.empty()) {
    notes.push_back(
        fmt::format("a GGUF file names three tokens that end an answer; this one does not say that {} {} too",
                    fmt::join(nameless, ", "), nameless.size() == 1 ? "does" : "do"));
  }
  if (!model->predictors().all().empty()) notes.emplace_back("the block that predicts further tokens is not written");
  const auto again = std::ranges::count_if(file.tensors(), [](const PlannedTensor& planned) {
    const tensor::TensorView* from = planned.tensor.from;
    return from != nullptr && tensor::is_block_type(planned.type) && from->type != planned.type &&
           (tensor::is_block_type(from->type) || from->groups.size != 0);
  });
  if (again > 0) {
    notes.push_back(fmt::format(
        "{} weights were quantised already and are rounded a second time; the folder they came from loses less",
        again));
  }
  return FolderConversion{std::move(model), std::move(file), std::move(notes)};
}

}  // namespace adze::convert
