#include "cli/contract/contract.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::cli::contract {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;

// The members of one object: each is asked for by name, and what nobody asked for is an error.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  tl::unexpected<Error> wrong(std::string_view what) const {
    return fail(ErrorCode::corrupt_file, fmt::format("{}: {}", where_, what), "docs/bench-contracts.md has the format");
  }
  Status check_object() const {
    if (object_.is_object()) return {};
    return wrong("must be a JSON object");
  }
  const Json* find(const char* key) {
    asked_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  Result<std::string> text(const char* key, bool required = false) {
    const Json* value = find(key);
    if (value == nullptr && !required) return std::string();
    if (value == nullptr || !value->is_string() || (required && value->get_ref<const std::string&>().empty())) {
      return wrong(fmt::format("'{}' must be a text", key));
    }
    return value->get<std::string>();
  }
  Result<std::int64_t> count(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer() || *value < least || *value > most) {
      return wrong(fmt::format("'{}' must be a whole number from {} to {}", key, least, most));
    }
    return value->get<std::int64_t>();
  }
  Result<double> number(const char* key, double otherwise, double least, double most) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most)) {
      return wrong(fmt::format("'{}' must be a number from {} to {}", key, least, most));
    }
    return value->get<double>();
  }
  Result<std::vector<std::int32_t>> ids(const char* key) {
    std::vector<std::int32_t> out;
    const Json* value = find(key);
    if (value == nullptr) return out;
    if (!value->is_array()) return wrong(fmt::format("'{}' must be a list of token ids", key));
    for (const Json& id : *value) {
      if (!id.is_number_integer() || id < 0 || id > limits::kMaxVocabulary) {
        return wrong(fmt::format("'{}' must be a list of token ids", key));
      }
      out.push_back(id.get<std::int32_t>());
    }
    return out;
  }
  Status no_others() const {
    for (const auto& [key, value] : object_.items()) {
      if (!asked_.contains(key)) return wrong(fmt::format("'{}' is not known", key));
    }
    return {};
  }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> asked_;
};

Result<SamplingOptions> read_sampling(const Json& object, const std::string& where) {
  Fields fields(object, where);
  ADZE_TRY_STATUS(fields.check_object());
  SamplingOptions s;
  ADZE_TRY(const double temperature, fields.number("temperature", 0, 0, 100));
  ADZE_TRY(const std::int64_t top_k, fields.count("top_k", s.top_k, 0, limits::kMaxVocabulary));
  ADZE_TRY(const double top_p, fields.number("top_p", s.top_p, 0, 1));
  ADZE_TRY(const double min_p, fields.number("min_p", s.min_p, 0, 1));
  ADZE_TRY(const double penalty, fields.number("repetition_penalty", 1, 0.01, 100));
  ADZE_TRY(const std::int64_t seed, fields.count("seed", 1, 0, std::int64_t{1} << 62));
  s.temperature = static_cast<float>(temperature);
  s.top_k = static_cast<int>(top_k);
  s.top_p = static_cast<float>(top_p);
  s.min_p = static_cast<float>(min_p);
  s.repetition_penalty = static_cast<float>(penalty);
  s.seed = static_cast<std::uint64_t>(seed);
  ADZE_TRY_STATUS(fields.no_others());
  return s;
}

Result<std::string> user_text(Fields& fields, const std::filesystem::path& folder) {
  ADZE_TRY(std::string user, fields.text("user"));
  ADZE_TRY(const std::string file, fields.text("user_file"));
  if (file.empty()) return user;
  const std::filesystem::path path = file;
  if (path.is_absolute() || std::ranges::find(path, "..") != path.end()) {
    return fields.wrong("'user_file' must lie beside the contract");
  }
  ADZE_TRY(const std::string more, read_file(folder / path, limits::kMaxPromptBytes));
  return user.empty() ? more : fmt::format("{}\n\n{}", user, more);
}

Result<Ask> read_ask(const Json& object, const std::string& where, std::int64_t max_tokens,
                     const std::filesystem::path& folder) {
  Fields fields(object, where);
  ADZE_TRY_STATUS(fields.check_object());
  Ask ask;
  ADZE_TRY(ask.name, fields.text("name", true));
  ADZE_TRY(ask.system, fields.text("system"));
  ADZE_TRY(ask.user, user_text(fields, folder));
  ADZE_TRY(ask.text, fields.text("text"));
  ADZE_TRY(ask.ids, fields.ids("ids"));
  ADZE_TRY(ask.random_count, fields.count("random_ids", 0, 1, limits::kMaxContext));
  ADZE_TRY(const std::int64_t seed, fields.count("random_seed", 1, 0, std::int64_t{1} << 62));
  ask.random_seed = static_cast<std::uint64_t>(seed);
  ADZE_TRY(ask.continues, fields.text("continues"));
  ADZE_TRY(ask.max_tokens, fields.count("max_tokens", max_tokens, 1, limits::kMaxContext));
  ADZE_TRY(ask.oracle, fields.ids("oracle"));
  if (const Json* after = fields.find("after"); after != nullptr) {
    if (!after->is_array() || !std::ranges::all_of(*after, [](const Json& name) { return name.is_string(); })) {
      return fields.wrong("'after' must be a list of names");
    }
    ask.after = after->get<std::vector<std::string>>();
  }
  ADZE_TRY_STATUS(fields.no_others());
  const bool has_ids = !ask.ids.empty() || ask.random_count > 0;
  const int prompts = (ask.is_chat() ? 1 : 0) + (ask.text.empty() ? 0 : 1) + (has_ids ? 1 : 0);
  if (prompts != 1) return fields.wrong("needs one of 'user', 'text', and 'random_ids' or 'ids' or both");
  if (!ask.is_chat() && (!ask.continues.empty() || !ask.system.empty())) {
    return fields.wrong("'continues' and 'system' belong to a chat, with 'user'");
  }
  if (!ask.continues.empty()) {
    if (!ask.system.empty()) return fields.wrong("the chat that it continues has the 'system' text");
    ask.after.push_back(ask.continues);
  }
  return ask;
}

// Names are unique, and who waits stands behind whom it waits for: so nobody waits for ever.
Status check_order(const Contract& contract, const Fields& fields) {
  std::map<std::string, const Ask*> seen;
  for (const Ask& ask : contract.asks) {
    for (const std::string& name : ask.after) {
      const auto found = seen.find(name);
      if (found == seen.end()) {
        return fields.wrong(fmt::format("request '{}' waits for '{}', which must stand before it", ask.name, name));
      }
      if (name == ask.continues && !found->second->is_chat()) {
        return fields.wrong(fmt::format("request '{}' continues '{}', which is not a chat", ask.name, name));
      }
    }
    if (!seen.emplace(ask.name, &ask).second) {
      return fields.wrong(fmt::format("two requests are called '{}'", ask.name));
    }
  }
  return {};
}

}  // namespace

Result<Contract> parse_contract(std::string text, const std::string& name, const std::filesystem::path& folder) {
  const Json file = Json::parse(text, nullptr, false);
  Fields fields(file, fmt::format("contract '{}'", name));
  if (file.is_discarded()) return fields.wrong("it is not JSON");
  ADZE_TRY_STATUS(fields.check_object());
  ADZE_TRY(const std::int64_t format, fields.count("contract", 0, 0, 1'000'000));
  if (format != kFormat) return fields.wrong(fmt::format("'contract' must be {}, the format's version", kFormat));
  Contract contract;
  ADZE_TRY(contract.id, fields.text("id", true));
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_'; };
  if (contract.id.size() > limits::kMaxContractIdBytes || !std::ranges::all_of(contract.id, plain)) {
    return fields.wrong(
        fmt::format("'id' must be at most {} letters, digits, '-' and '_'", limits::kMaxContractIdBytes));
  }
  ADZE_TRY(contract.description, fields.text("description"));
  ADZE_TRY(contract.model, fields.text("model", true));
  ADZE_TRY(const std::int64_t max_tokens, fields.count("max_tokens", 128, 1, limits::kMaxContext));
  const Json none = Json::object();
  const Json* sampling = fields.find("sampling");
  ADZE_TRY(contract.sampling,
           read_sampling(sampling == nullptr ? none : *sampling, fmt::format("contract '{}', sampling", name)));
  if (const Json* checks = fields.find("checks"); checks != nullptr) {
    Fields of(*checks, fmt::format("contract '{}', checks", name));
    ADZE_TRY_STATUS(of.check_object());
    ADZE_TRY(contract.checks.least_reuse, of.number("prefix_reuse", 0, 0, 1));
    ADZE_TRY(const double gain, of.number("gain", 0, 0, 1000));
    if (gain > 0) contract.checks.least_gain = gain;
    ADZE_TRY_STATUS(of.no_others());
  }
  const Json* requests = fields.find("requests");
  if (requests == nullptr || !requests->is_array() || requests->empty() ||
      requests->size() > limits::kMaxContractRequests) {
    return fields.wrong(fmt::format("'requests' must be a list of 1 to {}", limits::kMaxContractRequests));
  }
  for (std::size_t i = 0; i < requests->size(); ++i) {
    ADZE_TRY(contract.asks.emplace_back(),
             read_ask((*requests)[i], fmt::format("contract '{}', request {}", name, i + 1), max_tokens, folder));
  }
  ADZE_TRY_STATUS(fields.no_others());
  ADZE_TRY_STATUS(check_order(contract, fields));
  std::string everything = text;
  for (const Ask& ask : contract.asks) everything += '\0' + ask.user;
  contract.digest = digest(everything);
  contract.source = std::move(text);
  return contract;
}

Result<Contract> read_contract(const std::filesystem::path& path) {
  ADZE_TRY(std::string text, read_file(path, limits::kMaxContractBytes));
  return parse_contract(std::move(text), path.filename().string(), path.parent_path());
}

double repeated_share(const std::vector<std::int32_t>& ids) {
  constexpr std::size_t kGram = 8;
  if (ids.size() < 2 * kGram) return 0;
  std::set<std::vector<std::int32_t>> seen;
  std::size_t repeated = 0, all = 0;
  for (std::size_t i = 0; i + kGram <= ids.size(); ++i, ++all) {
    const auto at = ids.begin() + static_cast<std::ptrdiff_t>(i);
    if (!seen.emplace(at, at + kGram).second) ++repeated;
  }
  return static_cast<double>(repeated) / static_cast<double>(all);
}

}  // namespace adze::cli::contract
