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
};

struct ConversationImpl {
  explicit ConversationImpl(std::shared_ptr<engine::Core> engine_core, text::ChatTemplate chat_template,
                            text::CivilTime started);
  ~ConversationImpl();
  ConversationImpl(const ConversationImpl&) = delete;
  ConversationImpl& operator=(const ConversationImpl&) = delete;

  // The whole conversation, ready for an answer, as the template writes it: user text never becomes special tokens.
  Result<std::vector<std::int32_t>> prompt() const;

  std::shared_ptr<engine::Core> core;
  text::ChatTemplate chat_template;
  text::CivilTime time;  // of the start: strftime_now must not change the beginning of a prompt in mid-conversation
  std::string system;
  Thinking thinking = Thinking::model_default;
  std::vector<ChatMessage> messages;
  engine::Sequence sequence;
};

namespace engine {

// Reads a model, decides on a context that fits into memory, prepares the backend.
Result<CoreParts> load_parts(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace engine
}  // namespace adze
