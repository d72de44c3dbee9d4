// Exit codes, messages, clean pipes and valid JSON, on the real program and a small model with random weights.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/process.hpp"

namespace adze::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kData = ADZE_TEST_DATA;
const std::string kModel = kData + "/oracles/llama-gqa-rope3/llama-gqa-rope3-Q8_0.gguf";

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The model has no template of its own.
constexpr std::string_view kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
    "%}";

class Program : public ::testing::Test {
 protected:
  Outcome adze(std::vector<std::string> arguments, std::string input = {}) {
    return run(box_, {std::move(arguments), std::move(input), {}, {}});
  }
  json adze_json(std::vector<std::string> arguments, std::string input = {}) {
    const Outcome outcome = adze(std::move(arguments), std::move(input));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const json value = json::parse(outcome.out, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << outcome.out;
    return value;
  }
  // A failure says one sentence and a hint on stderr, nothing on stdout.
  void expect_failure(const Outcome& outcome, int code, const std::string& words) {
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(words));
    EXPECT_THAT(outcome.err, ::testing::StartsWith("adze: "));
    EXPECT_THAT(outcome.err, HasSubstr("\nhint: "));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
  Sandbox box_;
  const std::string template_ = box_.write("chat.jinja", kTemplate);
};

// ---- packed weights ------------------------------------------------------------------------------------------------

TEST_F(Program, WeightsArePackedByTheFirstRunAndMappedByTheNext) {
  const std::vector<std::string> once{"generate", kModel, "--ids", "1,2,3", "-n", "4", "--temperature", "0", "--json"};
  const std::string packs = box_.file(".cache/adze/packs");
  std::vector<std::string> without = once;
  without.insert(without.end(), {"--packs", "off"});
  const json raw = adze_json(without);
  EXPECT_FALSE(std::filesystem::exists(packs));
  EXPECT_EQ(adze_json(once)["logits_hash"], raw["logits_hash"]);
  std::vector<std::string> verbose = once;
  verbose.emplace_back("--verbose");
  const Outcome again = adze(verbose);
  EXPECT_EQ(json::parse(again.out)["logits_hash"], raw["logits_hash"]);
  EXPECT_THAT(again.err, HasSubstr("packed weights: "));
  EXPECT_THAT(again.err, Not(HasSubstr("in the making")));
  EXPECT_THAT(again.err, HasSubstr(packs));

  const json listed = adze_json({"cache", "packs", "--json"});
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["condition"], "current");
  EXPECT_EQ(listed[0]["sources"], json::array({kModel}));
  EXPECT_THAT(adze({"cache", "packs"}).out, HasSubstr(kModel));
  EXPECT_THAT(adze({"cache", "packs", kModel, "--verify"}).out, HasSubstr("  ok\n"));
  expect_failure(adze({"cache", "packs", "nobody"}), 3, "no packed weights of 'nobody'");
  expect_failure(adze({"cache", "pages"}), 2, "no cache 'pages'");
  expect_failure(adze({"cache", "packs", "", "--clear"}), 2, "NAME is empty");
  expect_failure(adze({"cache", "packs", "--verify", "--clear"}), 2, "do not go together");
  expect_failure(adze({"bench", "limits", "--rows", "3"}), 2, "--rows belongs to adze bench kernels");
  expect_failure(adze({"bench", "model", kModel, kModel}), 2, "does nothing with");

  const std::string file = listed[0]["path"];
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-9, std::ios::end).put('x');
  const Outcome damaged = adze({"cache", "packs", "--verify"});
  EXPECT_EQ(damaged.exit_code, 4) << damaged.err;
  EXPECT_THAT(damaged.err, HasSubstr("1 of 1 packs cannot be trusted"));
  EXPECT_EQ(adze({"cache", "packs", "--clear"}).exit_code, 0);
  EXPECT_EQ(adze_json({"cache", "packs", "--json"}), json::array());

  EXPECT_EQ(adze({"cache", "packs", "--make", kModel}).exit_code, 0);
  EXPECT_EQ(adze_json({"cache", "packs", "--json"}).size(), 1u);
  expect_failure(adze({"cache", "packs", "--make", kModel, "--packs", "off"}), 2, "runs without packed weights");
  expect_failure(adze({"cache", "packs", "--make", kModel, "--cache-dir", kModel}), 3, kModel);
}

// A cache that cannot be written is nobody's problem but that of --verbose.
TEST_F(Program, WithoutACacheTheAnswerIsTheSame) {
  const std::vector<std::string> once{"generate", kModel, "--ids", "1,2,3", "-n", "4", "--cache-dir", template_};
  const Outcome silent = adze(once);
  EXPECT_EQ(silent.exit_code, 0);
  EXPECT_THAT(silent.err, Not(HasSubstr("chat.jinja")));
  std::vector<std::string> verbose = once;
  verbose.emplace_back("-v");
  const Outcome told = adze(verbose);
  EXPECT_EQ(told.exit_code, 0);
  EXPECT_THAT(told.err, HasSubstr("packed weights: none, cannot create '" + template_));
}

// ---- usage --------------------------------------------------------------------------------------------------------

TEST_F(Program, UsageErrors) {
  EXPECT_EQ(adze({}).exit_code, 2);
  expect_failure(adze({"rnu"}), 2, "no command 'rnu'");
  EXPECT_THAT(adze({"rnu"}).err, HasSubstr("'run'"));
  expect_failure(adze({"run"}), 2, "needs MODEL");
  expect_failure(adze({"run", kModel, "hi", "--thread", "3"}), 2, "--thread");
  expect_failure(adze({"run", kModel, "hi", "--threads", "many"}), 2, "--threads: 'many'");
  expect_failure(adze({"run", kModel, "hi", "--top-p", "1.5"}), 2, "--top-p: '1.5'");
  expect_failure(adze({"run", kModel, "hi", "--logit-bias", "abc=1"}), 2, "--logit-bias");
  expect_failure(adze({"generate", kModel, "--ids", "1,99999999"}), 2, "'99999999' is not a token id");
  expect_failure(adze({"generate", kModel, "--ids", "1,,2"}), 2, "'' is not a token id");
  expect_failure(adze({"generate", kModel, "text", "--ids", "1,2"}), 2, "both given");
  expect_failure(adze({"completion", "csh"}), 2, "csh");
  std::vector<std::string> stops{"run", kModel, "hi", "--chat-template", template_};
  for (int i = 0; i < 65; ++i) stops.insert(stops.end(), {"--stop", fmt::format("s{}", i)});
  expect_failure(adze(stops), 2, "at most 64");
  expect_failure(adze({"list", "--models-dir", kModel}), 2, "is a file");
  EXPECT_EQ(adze({"--help"}).exit_code, 0);
  EXPECT_THAT(adze({"help", "run"}).out, HasSubstr("usage: adze run"));
  EXPECT_THAT(adze({"--version"}).out, ::testing::StartsWith("adze "));
}

TEST_F(Program, WhatAdzeLacksIsRefusedByName) {
  for (const char* flag : {"--lora", "--adapter", "--image", "--mmproj", "--audio"}) {
    expect_failure(adze({"run", kModel, "hi", flag, "x"}), 4, "supported");
  }
}

// ---- files ----------------------------------------------------------------------------------------------------------

TEST_F(Program, NoModel) {
  expect_failure(adze({"run", box_.file("none.gguf"), "hi"}), 3, "no file");
  expect_failure(adze({"run", "nobody", "hi"}), 3, "nobody");
  expect_failure(adze({"list", "nobody"}), 3, "nobody");
  expect_failure(adze({"rm", "nobody"}), 3, "nobody");
  expect_failure(adze({"run", box_.path().string(), "hi"}), 4, "is a directory");
}

TEST_F(Program, NotAModel) {
  expect_failure(adze({"run", box_.write("a.gguf", "This is a letter, not a model.\n"), "hi"}), 4, "a.gguf");
  expect_failure(adze({"run", box_.write("b.gguf", ""), "hi"}), 4, "b.gguf");
  expect_failure(adze({"inspect", box_.write("c.gguf", std::string(100, '\0'))}), 4, "c.gguf");
}

TEST_F(Program, TruncatedModel) {
  const std::string whole = read_all(kModel);
  for (const double share : {0.001, 0.1, 0.9}) {
    const auto size = static_cast<std::size_t>(share * static_cast<double>(whole.size()));
    const std::string path = box_.write("cut.gguf", whole.substr(0, size));
    expect_failure(adze({"run", path, "hi"}), 4, "cut.gguf");
  }
}

TEST_F(Program, UnknownArchitectureIsReadable) {
  const std::string path = kData + "/badfiles/L19_unknown_arch.gguf";
  expect_failure(adze({"run", path, "hi"}), 4, "zz-never-heard-of");
  const json report = adze_json({"inspect", path, "--json"});
  EXPECT_EQ(report["supported"], false);
  EXPECT_EQ(report["refusal"]["code"], "unsupported_architecture");
}

// ---- limits ---------------------------------------------------------------------------------------------------------

TEST_F(Program, ContextFull) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word ";
  expect_failure(adze({"run", kModel, text, "--ctx", "64", "--chat-template", template_}), 5, "64");
  expect_failure(adze({"generate", kModel, text, "--ctx", "64"}), 5, "64");
}

TEST_F(Program, ContextThatDoesNotFitIsRefusedBeforeAllocation) {
  const Outcome outcome = run(box_, {{"generate", kModel, "hi", "-n", "1", "--ctx", "16000000"}, {}, {}, {}});
  EXPECT_EQ(outcome.exit_code == 5 || outcome.exit_code == 0, true) << outcome.err;  // a machine may have the memory
  if (outcome.exit_code == 5) {
    EXPECT_THAT(outcome.err, HasSubstr("available"));
    EXPECT_THAT(outcome.err, HasSubstr("largest context that fits"));
  }
}

TEST_F(Program, AModelWithoutTemplateSaysHowToGoOn) {
  expect_failure(adze({"run", kModel, "hi"}), 4, "no chat template");
  expect_failure(adze({"template", kModel, "--input", template_}), 3, "no chat template");
}

TEST_F(Program, BadUtf8) {
  expect_failure(adze({"run", kModel}, "caf\xe9"), 2, "stdin is not UTF-8: byte 0xe9 at offset 3");
  expect_failure(adze({"generate", kModel, "-"}, "\xff"), 2, "offset 0");
  expect_failure(adze({"run", kModel, "-f", box_.write("latin1.txt", "caf\xe9")}), 2, "latin1.txt");
  expect_failure(adze({"run", kModel, "caf\xe9"}), 2, "not UTF-8");
  for (const char* flag : {"--system", "--stop", "--dry-breaker"}) {
    expect_failure(adze({"run", kModel, "hi", "--chat-template", template_, flag, "ab\xff"}), 2, "not UTF-8 at byte 2");
  }
}

TEST_F(Program, APipeIsNoModelFile) {
  const std::string pipe = box_.file("pipe.gguf");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const char* command : {"inspect", "plan"}) expect_failure(adze({command, pipe}), 2, "not a regular file");
}

TEST_F(Program, FullDisk) {
  const Outcome outcome = run(box_, {{"generate", kModel, "--ids", "1", "-n", "4"}, {}, {}, "/dev/full"});
  EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("stdout"));
}

TEST_F(Program, NoNetworkLeavesNothingBehind) {
  const std::string models = box_.file("models");
  // Port 9 of this machine: nobody answers, no name is looked up.
  const Outcome outcome =
      adze({"pull", "hf:org/repo/file.gguf", "--hub-endpoint", "http://127.0.0.1:9", "--models-dir", models});
  expect_failure(outcome, 6, "127.0.0.1");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(models)) {
    EXPECT_TRUE(entry.is_directory()) << entry.path();
  }
}

// ---- answers
// ----------------------------------------------------------------------------------------------------------

TEST_F(Program, PipesCarryTheAnswerOnly) {
  const Outcome outcome = adze({"run", kModel, "-n", "8", "--temperature", "0", "--chat-template", template_}, "hello");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(IsEmpty()));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.err, HasSubstr("first token"));
  EXPECT_THAT(outcome.err, HasSubstr("peak memory"));

  const Outcome quiet =
      adze({"run", kModel, "hello", "-n", "8", "--temperature", "0", "-q", "--chat-template", template_});
  EXPECT_EQ(quiet.out, outcome.out);
  EXPECT_THAT(quiet.err, IsEmpty());
}

TEST_F(Program, GenerateIsDeterministicAndThreadsChangeNothing) {
  std::string hash;
  for (const char* threads : {"1", "2", "3"}) {
    const json answer = adze_json({"generate", kModel, "--ids", "5,6,7", "-n", "12", "--temperature", "0", "--threads",
                                   threads, "--ignore-eos", "--json"});
    EXPECT_EQ(answer["ids"].size(), 12u);
    EXPECT_EQ(answer["prompt_ids"], json({5, 6, 7}));
    EXPECT_EQ(answer["finish"], "length");
    EXPECT_TRUE(answer["timings"]["first_token_seconds"].is_number());
    if (hash.empty()) hash = answer["logits_hash"];
    EXPECT_EQ(answer["logits_hash"], hash) << threads;
  }
  const json first = adze_json({"generate", kModel, "--ids", "5", "-n", "9", "--seed", "4", "--json"});
  const json second = adze_json({"generate", kModel, "--ids", "5", "-n", "9", "--seed", "4", "--json"});
  EXPECT_EQ(first["ids"], second["ids"]);
  EXPECT_EQ(first["seed"], 4);
}

TEST_F(Program, LogitsFiles) {
  const std::string all = box_.file("all.npy");
  const std::string last = box_.file("last.npy");
  EXPECT_EQ(adze({"logits", kModel, "--ids", "1,2,3", "--all", "--out", all}).exit_code, 0);
  EXPECT_EQ(adze({"logits", kModel, "--ids", "1,2,3", "--out", last}).exit_code, 0);
  const std::string many = read_all(all);
  const std::string one = read_all(last);
  EXPECT_THAT(many.substr(0, 128), HasSubstr("(3, 1280)"));
  EXPECT_THAT(one.substr(0, 128), HasSubstr("(1280,)"));
  ASSERT_GE(one.size(), 1280u * 4);
  EXPECT_EQ(many.substr(many.size() - 1280 * 4), one.substr(one.size() - 1280 * 4));
  const std::string layers = box_.file("layers.safetensors");
  EXPECT_EQ(adze({"logits", kModel, "--ids", "1,2,3", "--dump-layers", layers}).exit_code, 0);
  EXPECT_EQ(adze({"inspect", layers}).exit_code, 0);
}

TEST_F(Program, PlanNamesItsRoute) {
  const json plan = adze_json({"plan", kModel, "--json"});
  EXPECT_EQ(plan["route"].get<std::string>().size(), 32u);
  EXPECT_THAT(adze({"plan", kModel}).out, HasSubstr(plan["route"].get<std::string>()));
}

TEST_F(Program, Perplexity) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} of a text about nothing\n", i);
  const std::string file = box_.write("text.txt", text);
  const std::string saved = box_.file("saved.npy");
  const json first =
      adze_json({"perplexity", kModel, file, "--window", "64", "--windows", "4", "--save-logits", saved, "--json"});
  EXPECT_GT(first["perplexity"], 1.0);
  EXPECT_EQ(first["windows"], 4);
  EXPECT_EQ(first["counted_tokens"], 4 * 31);
  const json second =
      adze_json({"perplexity", kModel, file, "--window", "64", "--windows", "4", "--against", saved, "--json"});
  EXPECT_EQ(first["perplexity"], second["perplexity"]);
  EXPECT_NEAR(second["kl_divergence"].get<double>(), 0.0, 1e-9);
  EXPECT_EQ(second["same_top_share"], 1.0);
  expect_failure(adze({"perplexity", kModel, box_.write("short.txt", "too short")}), 2, "short.txt");
}

// A smaller model from a measured one, and the refusals on the way.
TEST_F(Program, QuantizeWithAnImportanceMatrix) {
  const std::string source = kData + "/oracles/llama-gqa-rope3/llama-gqa-rope3-BF16.gguf";
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("The number {} is followed by {}. ", i, i + 1);
  const std::string file = box_.write("text.txt", text);
  const std::string matrix = box_.file("m.imatrix.gguf"), out = box_.file("small.gguf");
  expect_failure(adze({"imatrix", source}), 2, "no text");
  const json measured = adze_json({"imatrix", source, "-f", file, "-o", matrix, "-c", "64", "--chunks", "3", "--json"});
  EXPECT_EQ(measured["chunks"], 3);
  EXPECT_EQ(measured["chunk_size"], 64);
  EXPECT_EQ(measured["matrices"], 7 * 5);
  expect_failure(adze({"imatrix", source, "-f", file, "-o", matrix}), 2, "exists");
  expect_failure(adze({"imatrix", source, "-f", file, "-o", matrix, "--force", "--chunks", "16777217"}), 2, "--chunks");

  const json made = adze_json({"quantize", source, out, "q4_0", "--imatrix", matrix, "--json"});
  EXPECT_EQ(made["type"], "Q4_0");
  EXPECT_EQ(made["without_importance"], 1);  // the embedding is looked up
  EXPECT_LT(made["bytes_after"], made["bytes_before"]);
  EXPECT_EQ(adze({"perplexity", out, file, "--window", "64", "--windows", "2"}).exit_code, 0);
  expect_failure(adze({"quantize", source, out, "Q8_0"}), 2, "exists");
  expect_failure(adze({"quantize", source, source, "Q8_0", "--force"}), 2, "is one of the files that are read");
  expect_failure(adze({"quantize", source, matrix, "Q8_0", "--force", "--imatrix", matrix}), 2, "files that are read");
  const Outcome nowhere = adze({"quantize", source, box_.file("none/out.gguf"), "Q8_0", "--json"});
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_EQ(nowhere.out, "");  // no result of a file that was not written
  expect_failure(adze({"quantize", source, out, "Q4_X"}), 2, "'Q4_X' is no type");
  expect_failure(adze({"quantize", out, box_.file("again.gguf"), "Q4_1"}), 2, "is quantised already");
  expect_failure(adze({"quantize", source, out, "Q8_0", "--force", "--imatrix", source}), 4, "no importance matrix");
  expect_failure(adze({"quantize", source}), 2, "OUT is missing");
  EXPECT_THAT(adze({"quantize", "--list"}).out, HasSubstr("Q4_K_M"));
}

// ---- text
// ---------------------------------------------------------------------------------------------------------------

TEST_F(Program, TokenizeAndBack) {
  const json ids = adze_json({"tokenize", kModel, "Hello, world", "--json"})["ids"];
  ASSERT_FALSE(ids.empty());
  std::string list;
  for (const int id : ids) list += fmt::format("{}{}", list.empty() ? "" : ",", id);
  EXPECT_EQ(adze({"tokenize", kModel}, "Hello, world").out, list + "\n");
  EXPECT_EQ(adze({"detokenize", kModel, list}).out, "Hello, world");
  EXPECT_EQ(adze_json({"detokenize", kModel, "--json"}, list)["text"], "Hello, world");
  const json with_bos = adze_json({"tokenize", kModel, "Hello, world", "--bos", "--json"})["ids"];
  EXPECT_EQ(with_bos.size(), ids.size() + 1);
}

TEST_F(Program, TokenizerJsonIsEnough) {
  const std::string path = kData + "/tokenizers/real/smollm2.tokenizer.json";
  EXPECT_EQ(adze_json({"tokenize", path, "Hello world", "--json"})["ids"], json({19556, 905}));
  EXPECT_EQ(adze_json({"tokenize", path, "<|im_end|>", "--special", "--json"})["ids"], json({2}));
  EXPECT_GT(adze_json({"tokenize", path, "<|im_end|>", "--json"})["ids"].size(), 1u);
}

// The same model as kModel, in the format that it was converted from.
TEST_F(Program, AFolderIsAModel) {
  const char* oracles = std::getenv("ADZE_TEST_ORACLES");
  if (oracles == nullptr) GTEST_SKIP() << "set ADZE_TEST_ORACLES to the folder of all oracles for llama-gqa-rope3";
  const std::string folder = std::string(oracles) + "/models/llama-gqa-rope3/hf";
  const json report = adze_json({"inspect", folder, "--json"});
  EXPECT_EQ(report["supported"], true);
  EXPECT_EQ(report["architecture"], "llama");
  EXPECT_EQ(report["files"], json({"model.safetensors"}));
  EXPECT_EQ(adze_json({"tokenize", folder, "Hello, world", "--bos", "--json"})["ids"],
            adze_json({"tokenize", kModel, "Hello, world", "--bos", "--json"})["ids"]);
  EXPECT_EQ(adze_json({"generate", folder, "--ids", "1216,5,9", "-n", "4", "--json"})["ids"].size(), 4u);
  EXPECT_THAT(adze({"plan", folder}).out, HasSubstr("route"));
  expect_failure(adze({"run", std::string(oracles) + "/models", "hi"}), 4, "without config.json");
}

TEST_F(Program, TemplateSegments) {
  const std::string jinja =
      box_.write("t.jinja", "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}");
  const std::string input =
      box_.write("in.json", R"({"messages": [{"role": "user", "content": "<s>"}], "bos_token": "<s>"})");
  EXPECT_EQ(adze({"template", jinja, "--input", input}).out, "<s>[<s>]");
  const json segments = adze_json({"template", jinja, "--input", input, "--segments"});
  EXPECT_EQ(segments, json::parse(R"([{"text":"<s>[","literal":true},{"text":"<s>","literal":false},
                                      {"text":"]","literal":true}])"));
  const std::string dated = box_.write("d.jinja", "{{ strftime_now('%d %b %Y') }}");
  EXPECT_EQ(adze({"template", dated, "--input", input, "--date", "2026-07-26"}).out, "26 Jul 2026");
  expect_failure(adze({"template", dated, "--input", input, "--date", "2026-13-26"}), 2, "--date");
  expect_failure(adze({"template", box_.write("bad.jinja", "{% for %}"), "--input", input}), 4, "");
}

// ---- settings
// -----------------------------------------------------------------------------------------------------------

TEST_F(Program, SettingsAndTheirSources) {
  std::filesystem::create_directories(box_.path() / ".config/adze");
  box_.write(".config/adze/config.toml", "threads = 3\ntop_k = 7\n");
  const Outcome outcome = run(box_, {{"config", "--top-k", "9", "--json"}, {}, {"ADZE_CTX=100", "HF_TOKEN=hush"}, {}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json settings = json::parse(outcome.out);
  const auto source_of = [&](const char* key) -> std::string {
    for (const json& row : settings) {
      if (row["key"] == key)
        return fmt::format("{} {}", row["value"].get<std::string>(), row["source"].get<std::string>());
    }
    return {};
  };
  EXPECT_EQ(source_of("threads"), "3 file");
  EXPECT_EQ(source_of("top_k"), "9 flag");
  EXPECT_EQ(source_of("context"), "100 environment");
  EXPECT_EQ(source_of("hub_token"), "(hidden) environment");
  EXPECT_EQ(source_of("mmap"), "true default");
  EXPECT_THAT(outcome.out, Not(HasSubstr("hush")));

  box_.write(".config/adze/config.toml", "thread = 3\n");
  expect_failure(adze({"version"}), 2, "there is no setting 'thread'");
  EXPECT_THAT(adze({"version"}).err, HasSubstr("'threads'"));
}

TEST_F(Program, ConfigCanBeReadBack) {
  const Outcome printed = adze({"config", "--top-k", "5", "--system", "say \"hi\" # now", "--stop", "a b"});
  ASSERT_EQ(printed.exit_code, 0);
  const std::string file = box_.write("again.toml", printed.out);
  const Outcome again = adze({"config", "--config", file, "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr(R"("say \"hi\" # now")"));
}

TEST_F(Program, KernelSetsAreForcedByName) {
  EXPECT_EQ(adze({"generate", kModel, "--ids", "1", "-n", "1", "--cpu", "scalar"}).exit_code, 0);
  expect_failure(adze({"generate", kModel, "--ids", "1", "-n", "1", "--cpu", "z80"}), 2, "z80");
  const Outcome doctor = run(box_, {{"doctor"}, {}, {"ADZE_THREDS=1"}, {}});
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_THAT(doctor.out, HasSubstr("'ADZE_THREADS'"));
  EXPECT_EQ(adze_json({"doctor", "--json"})["problems"], json::array());
}

TEST_F(Program, BenchmarksAreSharesOfTheLimit) {
  const json model = adze_json({"bench", "model", kModel, "-t", "1", "--prompt-tokens", "8", "--generate-tokens", "4",
                                "--batch", "1,2", "--rounds", "1", "--json"});
  ASSERT_EQ(model["cases"].size(), 3u);
  EXPECT_EQ(model["cases"][2]["case"], "generate 4 x 2");
  for (const json& row : model["cases"]) {
    EXPECT_GT(row["tokens_per_second"][0], 0) << row;
    EXPECT_GT(row["share_of_limit"], 0) << row;
    EXPECT_FALSE(row.contains("ratio")) << row;
  }
  const json kernels = adze_json({"bench", "kernels", "q4_0", "--rows", "1,3", "-t", "1", "--json"});
  ASSERT_EQ(kernels["kernels"].size(), 2u);
  EXPECT_GT(kernels["kernels"][1]["share_of_limit"], 0);
  EXPECT_GT(adze_json({"bench", "limits", "-t", "1", "--json"})["int8_multiply_adds_per_second"], 0);
  expect_failure(adze({"bench", "speed"}), 2, "no benchmark 'speed'");
  expect_failure(adze({"bench", "model", kModel, "--peer", "/no/such/llama-bench"}), 3, "/no/such/llama-bench");
  expect_failure(adze({"bench", "kernels", "q9_z"}), 2, "q9_z");
  const Outcome verbose = adze({"generate", kModel, "--ids", "1,2", "-n", "3", "--ignore-eos", "--verbose"});
  EXPECT_THAT(verbose.err, HasSubstr("of this machine's limit: prompt "));
}

}  // namespace
}  // namespace adze::e2e
