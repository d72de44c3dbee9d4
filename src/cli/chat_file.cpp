#include "cli/chat_file.hpp"

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::cli {
namespace {

tl::unexpected<Error> not_a_chat(const std::filesystem::path& path, std::string_view what) {
  return fail(ErrorCode::corrupt_file, fmt::format("'{}' is not a saved chat: {}", path.string(), what),
              "It should be a file that /save wrote.");
}

}  // namespace

Status save_chat(const std::filesystem::path& path, const SavedChat& chat) {
  nlohmann::ordered_json file;
  file["system"] = chat.system;
  file["messages"] = nlohmann::ordered_json::array();
  for (const ChatMessage& message : chat.messages) {
    file["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  // A bad byte would throw; the text of a chat is UTF-8, and where it is not it becomes U+FFFD.
  return write_file_atomic(path, file.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Result<SavedChat> load_chat(const std::filesystem::path& path) {
  ADZE_TRY(const std::string text, read_file(path, limits::kMaxChatBytes));
  const auto file = nlohmann::json::parse(text, nullptr, false);
  if (!file.is_object()) return not_a_chat(path, "it is not a JSON object");
  SavedChat chat;
  const auto text_of = [](const nlohmann::json& object, const char* key) -> const std::string* {
    const auto member = object.find(key);
    return member == object.end() ? nullptr : member->get_ptr<const std::string*>();
  };
  if (const std::string* system = text_of(file, "system")) chat.system = *system;
  const auto messages = file.find("messages");
  if (messages == file.end() || !messages->is_array()) return not_a_chat(path, "it has no messages");
  for (const nlohmann::json& message : *messages) {
    const std::string* role = message.is_object() ? text_of(message, "role") : nullptr;
    const std::string* content = message.is_object() ? text_of(message, "content") : nullptr;
    if (role == nullptr || content == nullptr) return not_a_chat(path, "a message lacks its role or content");
    chat.messages.push_back({*role, *content});
  }
  return chat;
}

}  // namespace adze::cli
