// A model as the engine sees it: the mapped weights, what the metadata says, and the Plan of its forward pass.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "format/weight_store.hpp"
#include "model/huggingface/folder.hpp"
#include "model/hyperparameters.hpp"
#include "model/manifest.hpp"
#include "model/registry.hpp"
#include "model/rope.hpp"
#include "model/tensors.hpp"
#include "ops/plan.hpp"
#include "text/tokenizer.hpp"

namespace adze::model {

struct ModelOptions {
  MapOptions map{};
  RopeOverrides rope{};
  // Positions that the plan shall allow. 0: what the model was trained for, or what the rope overrides stretch that to.
  std::int64_t context = 0;
  bool check_manifest = true;  // where one lies beside the files
};

// What the model's makers suggest for sampling (general.sampling.*); unset: they say nothing.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k, penalty_window;
};

// Immutable after load; may be read by any thread. Views and plan live as long as it does, moves included.
class Model {
 public:
  // A GGUF file or a Hugging Face folder. Errors: those of open_model_source; unsupported_architecture (no family has
  // it), unsupported_feature and unsupported_type (by name), not_a_model (a vocabulary or an adapter without a model),
  // corrupt_file (also for a tensor that must be there and is not), invalid_argument (the rope overrides, the context).
  static Result<Model> load(const std::filesystem::path& path, const ModelOptions& options = {});
  // The same for a file that is open already.
  static Result<Model> load(ModelSource source, const ModelOptions& options = {});

  const Family& family() const { return *family_; }
  const Hyperparameters& hyperparameters() const { return parameters_; }
  const ops::Plan& plan() const { return plan_; }
  const format::WeightStore& weights() const { return store_; }
  // Of the blocks that predict further tokens (see Weights::bind_predictors); the plan does not read them.
  const Weights& predictors() const { return predictors_; }
  const format::Metadata& metadata() const { return store_.metadata(); }
  // What a manifest says of this model, whatever the options that it was loaded with.
  ManifestSource manifest_source() const;
  const Weights& named_weights() const { return weights_; }  // by the GGUF names of the family's rows

  std::string name() const;              // general.name, else the file's
  std::int64_t parameter_count() const;  // elements of the tensors that the plan reads
  const GenerationDefaults& generation_defaults() const { return defaults_; }
  std::optional<std::string_view> chat_template() const;  // Jinja source
  // One line each, for people: tensors not used, a context beyond the trained one, sampling advice not followed.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  explicit Model(format::WeightStore store) : store_(std::move(store)) {}
  Status build(const ModelOptions& options);
  Status read_generation_defaults();

  format::WeightStore store_;
  Weights weights_, predictors_;
  const Family* family_ = nullptr;
  Hyperparameters parameters_;
  RopeSettings stated_rope_;  // as the files say, without overrides
  ops::Plan plan_;
  GenerationDefaults defaults_;
  std::vector<std::string> notes_;
};

// What `adze inspect` says about a file: its family, and whether Adze can run it or why not.
struct Explanation {
  std::string architecture;  // as the file says, made printable
  std::string family;        // empty: none has it
  std::string summary;       // of the family
  std::optional<Error> refusal;
  std::optional<Hyperparameters> parameters;  // unless refused
  std::vector<std::string> notes;
};
Explanation explain(ModelSource source);

// The model's tokenizer; its strings may be views into the model. Errors: those of the format's vocabulary and of
// Tokenizer::create.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::shared_ptr<const Model>& model);

}  // namespace adze::model
