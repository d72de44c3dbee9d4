#include "tune/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::tune {
namespace {

using Json = nlohmann::ordered_json;
using backend::Choice;

constexpr int kVersion = 1;

Json subject_json(const Subject& subject) {
  return {{"processor", subject.processor}, {"kernel_set", subject.kernel_set}, {"cpus", subject.cpus},
          {"build", subject.build},         {"weights", subject.weights},       {"settings", subject.settings}};
}

// Reads members of objects and remembers the first that is not what it should be.
class Reader {
 public:
  std::string text(const Json& object, const char* name) {
    const Json* value = member(object, name);
    if (value == nullptr || !value->is_string()) return wrong(name, "a text"), std::string();
    return value->get<std::string>();
  }
  double number(const Json& object, const char* name, double least, double most) {
    const Json* value = member(object, name);
    if (value == nullptr || !value->is_number()) return wrong(name, "a number"), least;
    const double number = value->get<double>();
    if (std::isfinite(number) && number >= least && number <= most) return number;
    return wrong(name, fmt::format("a number from {} to {}", least, most)), least;
  }
  int count(const Json& object, const char* name, int least, int most) {
    return static_cast<int>(number(object, name, least, most));
  }
  // The objects of an array.
  const Json& list(const Json& object, const char* name) {
    static const Json kNone = Json::array();
    const Json* value = member(object, name);
    if (value == nullptr || !value->is_array() || value->size() > limits::kMaxProfileEntries) {
      return wrong(name, "a list of no more entries than are possible"), kNone;
    }
    return *value;
  }
  const Json& object(const Json& from, const char* name) {
    static const Json kNone = Json::object();
    const Json* value = member(from, name);
    if (value == nullptr || !value->is_object()) return wrong(name, "an object"), kNone;
    return *value;
  }
  template <class Enum>
  Enum word(const Json& object, const char* name, std::optional<Enum> (*parse)(std::string_view)) {
    const std::optional<Enum> value = parse(text(object, name));
    if (!value) wrong(name, "a word that this version knows");
    return value.value_or(Enum{});
  }
  const std::string& error() const { return error_; }

 private:
  static const Json* member(const Json& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }
  void wrong(const char* name, std::string_view should) {
    if (error_.empty()) error_ = fmt::format("'{}' is not {}", name, should);
  }
  std::string error_;
};

constexpr double kMostMs = 1e9;

Profile read(const Json& root, Reader& reader) {
  Profile profile;
  const Json& subject = reader.object(root, "subject");
  profile.subject = {.processor = reader.text(subject, "processor"),
                     .kernel_set = reader.text(subject, "kernel_set"),
                     .cpus = reader.count(subject, "cpus", 1, limits::kMaxThreads),
                     .build = reader.text(subject, "build"),
                     .weights = reader.text(subject, "weights"),
                     .settings = reader.text(subject, "settings")};
  profile.model = reader.text(root, "model");
  profile.long_context = reader.count(root, "long_context", 0, limits::kMaxContext);
  for (const Json& entry : reader.list(root, "choices")) {
    Choice choice;
    choice.regime = reader.word<backend::Regime>(entry, "regime", backend::regime_of);
    choice.knob = reader.word<backend::Knob>(entry, "knob", backend::knob_of);
    choice.shape = reader.text(entry, "shape");
    choice.value = reader.count(entry, "value", 0, 1 << 20);
    choice.gain = reader.number(entry, "gain", 0, 1000);
    profile.choices.push_back(std::move(choice));
  }
  for (const Json& entry : reader.list(root, "gains")) {
    profile.gains.push_back({.regime = reader.word<backend::Regime>(entry, "regime", backend::regime_of),
                             .built_in_ms = reader.number(entry, "built_in_ms", 0, kMostMs),
                             .chosen_ms = reader.number(entry, "chosen_ms", 0, kMostMs)});
  }
  for (const Json& entry : reader.list(root, "costs")) {
    profile.costs.push_back({.rows = reader.count(entry, "rows", 1, limits::kMaxBatchRows),
                             .short_ms = reader.number(entry, "short_ms", 0, kMostMs),
                             .long_ms = reader.number(entry, "long_ms", 0, kMostMs)});
  }
  return profile;
}

// What a profile is of that it should not be.
std::string difference(const Subject& is, const Subject& should) {
  const auto differ = [](std::string_view what, const auto& a, const auto& b) {
    return a == b ? std::string() : fmt::format("{} '{}', and this is '{}'", what, a, b);
  };
  for (const std::string& text :
       {differ("processor", is.processor, should.processor), differ("kernel set", is.kernel_set, should.kernel_set),
        differ("number of CPUs", is.cpus, should.cpus), differ("version", is.build, should.build),
        differ("settings", is.settings, should.settings)}) {
    if (!text.empty()) return text;
  }
  return is.weights == should.weights ? std::string() : std::string("model, or an older state of it");
}

}  // namespace

std::string to_json(const Profile& profile) {
  Json choices = Json::array(), gains = Json::array(), costs = Json::array();
  for (const Choice& c : profile.choices) {
    choices.push_back({{"regime", std::string(backend::regime_word(c.regime))},
                       {"knob", std::string(backend::knob_word(c.knob))},
                       {"shape", c.shape},
                       {"value", c.value},
                       {"gain", c.gain}});
  }
  for (const RegimeGain& g : profile.gains) {
    gains.push_back({{"regime", std::string(backend::regime_word(g.regime))},
                     {"built_in_ms", g.built_in_ms},
                     {"chosen_ms", g.chosen_ms}});
  }
  for (const Cost& e : profile.costs) {
    costs.push_back({{"rows", e.rows}, {"short_ms", e.short_ms}, {"long_ms", e.long_ms}});
  }
  const Json root{{"adze_profile", kVersion},
                  {"model", profile.model},
                  {"subject", subject_json(profile.subject)},
                  {"long_context", profile.long_context},
                  {"choices", std::move(choices)},
                  {"gains", std::move(gains)},
                  {"costs", std::move(costs)}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Profile> parse_profile(std::string_view json) {
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object() || !root.contains("adze_profile")) {
    return fail(ErrorCode::corrupt_file, "this is not a profile", "Measure a new one with adze tune.");
  }
  Reader reader;
  const int version = reader.count(root, "adze_profile", 1, 1000);
  if (reader.error().empty() && version != kVersion) {
    return fail(ErrorCode::unsupported_feature, fmt::format("profiles of version {} are not known", version),
                "Measure a new one with adze tune.");
  }
  Profile profile = read(root, reader);
  if (!reader.error().empty()) {
    return fail(ErrorCode::corrupt_file, reader.error(), "Measure a new one with adze tune.");
  }
  for (std::size_t i = 1; i < profile.costs.size(); ++i) {
    if (profile.costs[i].rows > profile.costs[i - 1].rows) continue;
    return fail(ErrorCode::corrupt_file, "the costs do not ascend by rows", "Measure a new one with adze tune.");
  }
  return profile;
}

std::filesystem::path profile_path(const std::filesystem::path& directory, const Subject& subject) {
  return directory /
         (to_hex(digest(subject_json(subject).dump(-1, ' ', true, Json::error_handler_t::replace))) + ".json");
}

Result<Profile> read_profile(const std::filesystem::path& path, const Subject& subject) {
  ADZE_TRY(const std::string text, read_file(path, limits::kProfileMaxBytes));
  auto profile = parse_profile(text);
  if (!profile) {
    Error error = std::move(profile.error());
    error.message = fmt::format("profile '{}': {}", path.string(), error.message);
    return tl::unexpected(std::move(error));
  }
  const std::string differs = difference(profile->subject, subject);
  if (differs.empty()) return profile;
  return fail(ErrorCode::unsupported_feature,
              fmt::format("profile '{}' was measured for another {}", path.string(), differs),
              "Measure a new one with adze tune.");
}

Status write_profile(const std::filesystem::path& path, const Profile& profile, AtomicFile::Replace replace) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return tl::unexpected(errno_error(error.value(), "create", path.parent_path()));
  return write_file_atomic(path, std::string_view(to_json(profile)), replace);
}

}  // namespace adze::tune
