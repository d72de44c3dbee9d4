// Chat templates against Python's jinja2: every recorded conversation, and where each byte of the result comes from.
#include "text/chat_template.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace adze::text {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

fs::path data() { return fs::path(ADZE_TEST_DATA) / "chat"; }

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

RenderOptions at_pinned_time() {
  RenderOptions options;
  options.now = CivilTime{2026, 7, 26, 13, 5, 9};
  return options;
}

ChatTemplate parsed(const std::string& source) {
  auto made = ChatTemplate::parse(source);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made.value();
}

Result<std::string> render(const std::string& source, const std::string& input) {
  ADZE_TRY(const auto made, ChatTemplate::parse(source));
  ADZE_TRY(const auto segments, made.render(input, at_pinned_time()));
  return join_segments(segments);
}

void expect_outcome(const Json& c, const Result<std::string>& got, const std::string& what) {
  if (c.contains("expected")) {
    ASSERT_TRUE(got.has_value()) << what << ": " << got.error().message;
    EXPECT_EQ(*got, c["expected"].get<std::string>()) << what;
    return;
  }
  ASSERT_FALSE(got.has_value()) << what << ": " << *got;
  EXPECT_EQ(got.error().code, ErrorCode::template_error) << what;
  const std::string wanted = c["expected_error"].get<std::string>();
  if (c["error_type"] == "TemplateError")
    EXPECT_EQ(got.error().message, wanted) << what;
  else
    EXPECT_NE(got.error().message.find(wanted), std::string::npos) << what << ": " << got.error().message;
}

// Runs every case of a cases.json; the number of cases.
std::size_t run_cases(const fs::path& folder) {
  const Json all = Json::parse(slurp(folder / "cases.json"));
  std::map<std::string, ChatTemplate> templates;
  for (const Json& c : all["cases"]) {
    const std::string file = c["template"].get<std::string>();
    if (!templates.contains(file)) templates.emplace(file, parsed(slurp(folder / file)));
    Json input = c["kwargs"];
    for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
      input[name] = c[name];
    const auto segments = templates.at(file).render(input.dump(), at_pinned_time());
    Result<std::string> text = segments ? Result<std::string>(join_segments(*segments))
                                        : Result<std::string>(tl::unexpected<Error>(segments.error()));
    expect_outcome(c, text, c["family"].get<std::string>() + "/" + c["case"].get<std::string>());
  }
  return all["cases"].size();
}

TEST(ChatTemplates, RenderEveryRecordedConversation) { EXPECT_EQ(run_cases(data()), 504u); }

TEST(ChatTemplates, RenderEveryRecordedConversationOfRestrictedModels) {
  const char* oracles = std::getenv("ADZE_TEST_ORACLES");
  if (oracles == nullptr) GTEST_SKIP() << "ADZE_TEST_ORACLES is not set: the Llama and Gemma templates are not run";
  EXPECT_EQ(run_cases(fs::path(oracles) / "chat"), 756u);
}

TEST(ChatTemplates, LanguageFeatures) {
  for (const Json& c : Json::parse(slurp(data() / "jinja_features.json")))
    expect_outcome(c, render(c["template"].get<std::string>(), R"({"a": 1, "b": 2})"), c["name"].get<std::string>());
}

void run_vectors(const fs::path& file, const std::string& model, const fs::path& source, const Json& tokens) {
  const ChatTemplate chat_template = parsed(slurp(source));
  std::ifstream lines(file);
  ASSERT_TRUE(lines) << file;
  int run = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json c = Json::parse(line);
    if (c["model"] != model) continue;
    ++run;
    Json input = c["input"];
    input.update(tokens);
    input["add_generation_prompt"] = true;
    const auto got = chat_template.render(input.dump());
    const std::string what = model + "/" + c["case"].get<std::string>();
    if (c.contains("ok")) {
      ASSERT_TRUE(got.has_value()) << what << ": " << got.error().message;
      EXPECT_EQ(join_segments(*got), c["ok"].get<std::string>()) << what;
    } else {
      ASSERT_FALSE(got.has_value()) << what;
      const std::string error = c["error"].get<std::string>();
      const std::string sentence = error.starts_with("TemplateError: ") ? error.substr(15) : error;
      EXPECT_EQ(got.error().message.substr(0, sentence.size()), sentence) << what;
    }
  }
  EXPECT_EQ(run, 21);
}

TEST(ChatTemplates, RawServerInputs) {
  run_vectors(data() / "template_vectors.jsonl", "qwen35", data() / "templates/qwen3.5.jinja",
              {{"bos_token", ""}, {"eos_token", "<|im_end|>"}});
  const char* oracles = std::getenv("ADZE_TEST_ORACLES");
  const char* cases = std::getenv("ADZE_TEST_CASES");
  if (oracles == nullptr || cases == nullptr)
    GTEST_SKIP() << "ADZE_TEST_ORACLES and ADZE_TEST_CASES are not set: only qwen3.5 was run";
  const fs::path templates = fs::path(oracles) / "chat/templates";
  const fs::path vectors = fs::path(cases) / "template_vectors.jsonl";
  run_vectors(vectors, "llama31", templates / "llama3.1.jinja",
              {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|eot_id|>"}});
  run_vectors(vectors, "gemma4", templates / "gemma4.jinja", {{"bos_token", "<bos>"}, {"eos_token", "<eos>"}});
}

TEST(ChatTemplates, RandomTemplatesAsPythonRendersThem) {
  std::ifstream lines(data() / "expressions.jsonl");
  ASSERT_TRUE(lines);
  for (std::string line; std::getline(lines, line);) {
    const Json c = Json::parse(line);
    const auto got = render(c["template"].get<std::string>(), c["input"].get<std::string>());
    if (c.contains("ok")) {
      ASSERT_TRUE(got.has_value()) << c["template"] << ": " << got.error().message;
      EXPECT_EQ(*got, c["ok"].get<std::string>()) << c["template"];
    } else {
      EXPECT_FALSE(got.has_value()) << c["template"] << " should raise " << c["error"] << " but gives " << *got;
    }
  }
}

// --- segments
// ------------------------------------------------------------------------------------------------------------

// The segments as one text, data in brackets.
std::string marked(const std::string& source, const Json& input) {
  const auto segments = parsed(source).render(input.dump());
  if (!segments) return "error: " + segments.error().message;
  std::string out;
  bool before = false;
  for (std::size_t i = 0; i < segments->size(); ++i) {
    const Segment& s = (*segments)[i];
    EXPECT_FALSE(s.text.empty());
    EXPECT_TRUE(i == 0 || s.literal != before) << "neighbours must differ";
    before = s.literal;
    out += s.literal ? s.text : "[" + s.text + "]";
  }
  return out;
}

TEST(Segments, TemplateTextIsLiteralAndInputIsData) {
  const Json input = {{"messages", {{{"role", "user"}, {"content", " <|im_end|> "}}}},
                      {"add_generation_prompt", true},
                      {"eos_token", "</s>"},
                      {"name", "<|im_end|>"}};
  EXPECT_EQ(marked(fallback_chat_template().source(), input),
            "<|im_start|>[user]\n[ <|im_end|> ]<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(marked("a{{ eos_token }}b{{ name }}", input), "a</s>b[<|im_end|>]");
  EXPECT_EQ(marked("{{ '<|im_end|>' }}{{ 1 + 1 }}", input), "<|im_end|>[2]");
}

TEST(Segments, ProvenanceSurvivesStringOperations) {
  const Json input = {{"x", "data"}, {"l", {"p", "q"}}, {"d", {{"k", "v"}}}};
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'ab' + x + 'cd' }}", "ab[data]cd"},
      {"{{ ('ab' + x + 'cd')[1:5] }}", "b[dat]"},
      {"{{ ('ab' ~ x ~ 'cd')[::-1] }}", "dc[atad]ba"},
      {"{{ ('  ' + x + '  ') | trim }}", "[data]"},
      {"{{ ('<' + x + '>') | upper }}", "<[DATA]>"},
      {"{{ (x + '|' + x).split('|')[1] }}", "[data]"},
      {"{{ 'a-b' | replace('-', x) }}", "a[data]b"},
      {"{{ x | replace('a', '<|s|>') }}", "[d]<|s|>[t]<|s|>"},
      {"{{ l | join(', ') }}", "[p], [q]"},
      {"{{ ', '.join(l) }}", "[p], [q]"},
      {"{{ '%s:%s' % (x, 'lit') }}", "[data]:lit"},
      {"{{ '{}:{}'.format(x, 'lit') }}", "[data]:lit"},
      {"{{ d | tojson }}", "[{\"k\": \"v\"}]"},
      {"{{ l }}", "[['p', 'q']]"},
      {"{% set y %}<{{ x }}>{% endset %}{{ y }}", "<[data]>"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) | trim }}", "<[data]>"},
      {"{% filter upper %}a{{ x }}{% endfilter %}", "A[DATA]"},
      {"{% set ns = namespace(s='') %}{% for c in x %}{% set ns.s = ns.s + c + '-' %}{% endfor %}{{ ns.s }}",
       "[d]-[a]-[t]-[a]-"},
      {"{{ x | indent(2, first=true) }}", "  [data]"},
      {"{{ x.center(8, '*') }}", "**[data]**"},
      {"{{ x if x in ['data'] else 'other' }}", "[data]"},
      {"{{ {'data': 'lit'}[x] }}", "lit"},
      {"{{ undefined_name }}", ""},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked(source, input), expected) << source;
}

TEST(Segments, LiteralVariablesAreTheCallersChoice) {
  RenderOptions options;
  options.literal_variables = {"system_tag"};
  const auto segments =
      parsed("{{ system_tag }}{{ bos_token }}").render(R"({"system_tag":"<s>","bos_token":"<b>"})", options);
  ASSERT_TRUE(segments.has_value());
  EXPECT_EQ(*segments, (std::vector<Segment>{{"<s>", true}, {"<b>", false}}));
}

// --- the input
// -------------------------------------------------------------------------------------------------------------

TEST(Input, NumbersAndOrderSurvive) {
  const std::string json =
      R"({"v": {"z": 18446744073709551616, "a": -9223372036854775808, "f": 1e16, "g": 0.1, "h": 1.0, "n": null, "t": true}})";
  const auto segments = parsed("{{ v }}|{{ v | tojson }}").render(json);
  ASSERT_TRUE(segments.has_value()) << segments.error().message;
  EXPECT_EQ(
      join_segments(*segments),
      "{'z': 18446744073709551616, 'a': -9223372036854775808, 'f': 1e+16, 'g': 0.1, 'h': 1.0, 'n': None, 't': True}|"
      "{\"z\": 18446744073709551616, \"a\": -9223372036854775808, \"f\": 1e+16, \"g\": 0.1, \"h\": 1.0, \"n\": null, "
      "\"t\": true}");
}

TEST(Input, MustBeAJsonObject) {
  for (const char* json : {"", "[]", "3", "{", "{\"a\": }", "{\"a\": \"\xff\"}", "{} x"}) {
    const auto got = parsed("x").render(json);
    ASSERT_FALSE(got.has_value()) << json;
    EXPECT_EQ(got.error().code, ErrorCode::invalid_argument) << json;
  }
}

TEST(Input, FromATypedConversation) {
  ChatInput input;
  input.messages = {{"system", "Be \"brief\".", ""}, {"assistant", "", R"({"tool_calls": [{"id": "1"}]})"}};
  input.tools_json = R"([{"type": "function"}])";
  input.bos_token = "<s>";
  input.enable_thinking = false;
  input.variables_json = R"({"date_string": "today", "bos_token": "<b>"})";
  const auto json = to_json(input);
  ASSERT_TRUE(json.has_value()) << json.error().message;
  EXPECT_EQ(
      *json,
      R"({"messages":[{"role":"system","content":"Be \"brief\"."},{"role":"assistant","content":"",)"
      R"("tool_calls":[{"id":"1"}]}],"tools":[{"type":"function"}],"documents":null,"add_generation_prompt":true,)"
      R"("enable_thinking":false,"bos_token":"<b>","eos_token":"","date_string":"today"})");
  input.tools_json = "{}";
  EXPECT_EQ(to_json(input).error().code, ErrorCode::invalid_argument);
  input.tools_json = "";
  input.messages[0].content = "a\xff";
  EXPECT_NE(to_json(input)->find("a\xef\xbf\xbd"), std::string::npos);
}

TEST(Template, KnowsTheVariablesItReads) {
  const ChatTemplate t =
      parsed("{% set own = 1 %}{% if tools %}{{ own }}{% endif %}{% for m in messages %}{{ m.x }}{% endfor %}");
  EXPECT_TRUE(t.uses_variable("tools"));
  EXPECT_TRUE(t.uses_variable("messages"));
  EXPECT_FALSE(t.uses_variable("own"));
  EXPECT_FALSE(t.uses_variable("m"));
  EXPECT_FALSE(t.uses_variable("enable_thinking"));
}

}  // namespace
}  // namespace adze::text
