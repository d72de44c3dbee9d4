// What stands behind the classes of adze.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adze/adze.hpp"
#include "engine/core.hpp"

namespace adze {

struct EngineImpl {
  std::shared_ptr<engine::Core> core;

  // An engine of given parts: what load() ends with, and what tests begin with.
  static Engine assemble(engine::CoreParts parts);
  static Result<std::vector<Answer>> submit(const std::shared_ptr<engine::Core>& core,
                                            std::span<const Request> requests, int copies);
};

struct AnswerImpl {
  std::shared_ptr<engine::Core> core;
  std::shared_ptr<engine::Ticket> ticket;
  engine::RequestEvent last{};  // once it has come

  // False: it has ended.
  bool next(engine::RequestEvent& event);
};

struct ConversationImpl {
  ConversationImpl(std::shared_ptr<engine::Core> engine_core, text::ChatTemplate jinja, text::CivilTime started)
      : core(std::move(engine_core)), chat_template(std::move(jinja)), time(started) {}

  // Errors: unsupported_feature when the model has no template, or the template's own error.
  static Result<std::unique_ptr<ConversationImpl>> open(const std::shared_ptr<engine::Core>& core);

  // The whole conversation, ready for an answer, as the template writes it: user text never becomes special tokens.
  Result<std::vector<std::int32_t>> prompt() const;

  std::shared_ptr<engine::Core> core;
  text::ChatTemplate chat_template;
  text::CivilTime time;  // of the start: strftime_now must not change the beginning of a prompt in mid-conversation
  std::string system;
  Thinking thinking = Thinking::model_default;
  std::vector<ChatMessage> messages;
  std::int64_t tokens = 0;  // of the last prompt and its answer
};

namespace engine {

// Submits and waits; `on_text` may be empty, and cancels by saying no.
Result<Generation> generate(const std::shared_ptr<Core>& core, std::vector<std::int32_t> prompt,
                            const GenerateOptions& options, const OnText& on_text);

// Reads a model, decides on a context that fits into memory, prepares the backend.
Result<CoreParts> load_parts(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace engine
}  // namespace adze
