#include <utility>

#include "adze/adze.hpp"
#include "engine/api_impl.hpp"

namespace adze {
namespace {

std::string token_text(const text::Tokenizer& tokenizer, std::optional<text::TokenId> id) {
  return id ? std::string(tokenizer.token_text(*id)) : std::string();
}

}  // namespace

Result<std::vector<std::int32_t>> ConversationImpl::prompt() const {
  const text::Tokenizer& tokenizer = *core->parts().tokenizer;
  text::ChatInput input;
  if (!system.empty()) input.messages.push_back({.role = "system", .content = system, .fields_json = {}});
  for (const ChatMessage& message : messages) {
    input.messages.push_back({.role = message.role, .content = message.content, .fields_json = {}});
  }
  switch (thinking) {
    case Thinking::model_default: break;
    case Thinking::on: input.enable_thinking = true; break;
    case Thinking::off: input.enable_thinking = false; break;
  }
  input.bos_token = token_text(tokenizer, tokenizer.bos());
  input.eos_token = token_text(tokenizer, tokenizer.eos());
  ADZE_TRY(const std::string json, text::to_json(input));
  ADZE_TRY(const std::vector<text::Segment> segments, chat_template.render(json, {.now = time}));
  return tokenizer.encode(segments, {.add_bos = tokenizer.adds_bos()});
}

Result<std::unique_ptr<ConversationImpl>> ConversationImpl::open(const std::shared_ptr<engine::Core>& core) {
  const engine::CoreParts& parts = core->parts();
  if (parts.template_error) return tl::unexpected(*parts.template_error);
  if (!parts.chat_template) {
    return fail(ErrorCode::unsupported_feature, "the model has no chat template",
                "give one with --chat-template FILE, or continue text with `adze generate`");
  }
  const std::int64_t seconds = parts.template_time ? *parts.template_time : parts.host.unix_seconds();
  return std::make_unique<ConversationImpl>(core, *parts.chat_template, text::civil_time(seconds));
}

Result<Conversation> Engine::start_conversation() {
  ADZE_TRY(std::unique_ptr<ConversationImpl> conversation, ConversationImpl::open(impl_->core));
  return Conversation(std::move(conversation));
}

Result<std::vector<std::int32_t>> Engine::chat_prompt(std::span<const ChatMessage> messages, std::string_view system,
                                                      Thinking thinking) const {
  ADZE_TRY(const std::unique_ptr<ConversationImpl> conversation, ConversationImpl::open(impl_->core));
  conversation->system = system;
  conversation->messages.assign(messages.begin(), messages.end());
  conversation->thinking = thinking;
  return conversation->prompt();
}

Conversation::Conversation(std::unique_ptr<ConversationImpl> impl) : impl_(std::move(impl)) {}
Conversation::Conversation(Conversation&&) noexcept = default;
Conversation& Conversation::operator=(Conversation&&) noexcept = default;
Conversation::~Conversation() = default;

const std::vector<ChatMessage>& Conversation::messages() const { return impl_->messages; }
const std::string& Conversation::system() const { return impl_->system; }
void Conversation::set_messages(std::vector<ChatMessage> messages) { impl_->messages = std::move(messages); }
void Conversation::set_system(std::string text) { impl_->system = std::move(text); }
void Conversation::set_thinking(Thinking thinking) { impl_->thinking = thinking; }

void Conversation::clear() {
  impl_->messages.clear();
  impl_->tokens = 0;
}

std::int64_t Conversation::tokens_in_context() const { return impl_->tokens; }

Result<Generation> Conversation::say(std::string user, const GenerateOptions& options, const OnText& on_text) {
  ConversationImpl& c = *impl_;
  c.messages.push_back({.role = "user", .content = std::move(user)});
  std::int64_t prompt_tokens = 0;
  const auto answer = [&]() -> Result<Generation> {
    ADZE_TRY(std::vector<std::int32_t> prompt, c.prompt());
    prompt_tokens = std::ssize(prompt);
    return engine::generate(c.core, std::move(prompt), options, on_text);
  };
  Result<Generation> generation = answer();
  if (!generation) {
    c.messages.pop_back();
  } else {
    c.messages.push_back({.role = "assistant", .content = generation->text});
    c.tokens = prompt_tokens + std::ssize(generation->ids);
  }
  return generation;
}

}  // namespace adze
