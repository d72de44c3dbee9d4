// Whole models through the API: what a request says in company, from the cache, with drafts and after a preemption is
// what it says alone, bit for bit. Cases T43, T84, T89 and T92. Dense, windows, shared KV, Gated DeltaNet and mixtures
// of experts; trained tiny models where ADZE_TEST_TINY_MODELS names them, random weights where ADZE_TEST_ORACLES does.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "adze/adze.hpp"
#include "engine/api_impl.hpp"

namespace adze::test {
namespace {

struct ModelRow {
  const char* variable;  // where it is; nullptr: in the repository
  const char* path;
  bool trained;
};

std::string row_name(const testing::TestParamInfo<ModelRow>& row) {
  std::string name = std::filesystem::path(row.param.path).stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class Company : public testing::TestWithParam<ModelRow> {
 protected:
  void SetUp() override {
    const ModelRow& row = GetParam();
    std::filesystem::path folder = std::filesystem::path(ADZE_TEST_DATA) / "oracles";
    if (row.variable != nullptr) {
      const char* from = std::getenv(row.variable);
      if (from == nullptr) GTEST_SKIP() << "set " << row.variable << " for " << row.path;
      folder = from;
    }
    path = folder / row.path;
  }

  Engine load(LoadOptions options = {}) const {
    options.threads = 2;
    if (options.context == 0) options.context = 1024;
    if (options.chunk == 0) options.chunk = 48;
    auto parts = engine::load_parts(path, options);
    if (!parts) throw std::runtime_error(parts.error().message);
    if (options.speculation == Speculation::draft) {
      // A model of the target's own size never pays. Here it costs nothing, nor do rows, so that the gate lets it
      // draft.
      parts->draft_cost = 0;
      parts->costs = speculate::CostTable::from_points({{{.rows = 1, .near = 1}, {.rows = 64, .near = 1.01}}}, 0);
    }
    return EngineImpl::assemble(std::move(*parts));
  }

  // Of real text where the model was trained on some.
  static std::vector<std::int32_t> prompt(const Engine& engine, std::size_t length, int variant = 0) {
    std::vector<std::int32_t> ids;
    if (GetParam().trained) {
      std::ifstream file(std::filesystem::path(ADZE_TEST_DATA) / "../../bench/contracts/stock.py");
      std::stringstream text;
      text << file.rdbuf();
      ids = engine.tokenize(text.str() + text.str(), false, false).value();
    }
    for (int i = 0; ids.size() < 900; ++i)
      ids.push_back((i * 31 + i * i % 17) % std::min(engine.info().vocabulary, 200));
    ids.resize(length);
    // The variant is in the last quarter: beginnings are shared.
    for (std::size_t i = length - length / 4; i < length && variant > 0; i += 3) {
      ids[i] = (ids[i] + variant) % std::min(engine.info().vocabulary, 200);
    }
    return ids;
  }

  static GenerateOptions options(float temperature = 0, std::int64_t tokens = 24) {
    GenerateOptions made;
    made.sampling.temperature = temperature;
    made.sampling.seed = 3;
    made.max_tokens = tokens;
    made.ignore_eos = true;
    made.hash_logits = true;
    return made;
  }
  static GenerateOptions plain(GenerateOptions made) {
    made.speculate = made.reuse_prefix = false;
    return made;
  }

  static void expect_same(const Generation& got, const Generation& expected) {
    EXPECT_EQ(got.ids, expected.ids);
    EXPECT_EQ(got.logits_hash, expected.logits_hash);
  }

  std::filesystem::path path;
};

TEST_P(Company, T43SoloInCompanyFromTheCacheAndWithDrafts) {
  Engine engine = load();
  for (const float temperature : {0.0f, 0.8f}) {
    const GenerateOptions how = options(temperature);
    const auto ids = prompt(engine, 200);
    const Generation solo = engine.generate(ids, plain(how), nullptr).value();
    for (int again = 0; again < 3; ++again) expect_same(engine.generate(ids, how, nullptr).value(), solo);
    std::vector<Answer> answers;
    for (int i = 0; i < 8; ++i) {
      Request request;
      request.prompt = i == 4 ? ids : prompt(engine, static_cast<std::size_t>(30 + 45 * i), i);
      request.options = how;
      if (i != 4) request.options.sampling.seed = static_cast<std::uint64_t>(i);
      answers.push_back(engine.submit(request).value());
    }
    expect_same(answers[4].wait().value(), solo);
    const Generation last = answers[7].wait().value();
    GenerateOptions other = plain(how);
    other.sampling.seed = 7;
    expect_same(last, engine.generate(prompt(engine, 30 + 45 * 7, 7), other, nullptr).value());
  }
  EXPECT_EQ(engine.statistics().slots_in_use, 0);
}

TEST_P(Company, T84TwoTextsWithOneBeginningInTurn) {
  Engine engine = load();
  const auto a = prompt(engine, 300, 1), b = prompt(engine, 300, 2);
  const Generation cold_a = engine.generate(a, plain(options()), nullptr).value();
  const Generation cold_b = engine.generate(b, plain(options()), nullptr).value();
  const int turns = GetParam().trained ? 10 : 50;
  for (int turn = 0; turn < turns; ++turn) {
    expect_same(engine.generate(a, options(), nullptr).value(), cold_a);
    const Generation warm = engine.generate(b, options(), nullptr).value();
    expect_same(warm, cold_b);
    if (turn > 1) {
      EXPECT_GT(warm.statistics.reused_tokens, 200) << warm.statistics.not_reused;
    }
  }
}

TEST_P(Company, T89TheSameRequestThreeTimes) {
  Engine engine = load();
  for (const std::size_t length : {1u, 2u, 63u, 64u, 65u, 128u, 129u, 257u}) {
    const auto ids = prompt(engine, length, static_cast<int>(length));
    const Generation cold = engine.generate(ids, plain(options(0, 6)), nullptr).value();
    for (int again = 0; again < 3; ++again) {
      const Generation warm = engine.generate(ids, options(0, 6), nullptr).value();
      expect_same(warm, cold);
      if (again > 0) {
        EXPECT_EQ(warm.statistics.prompt_tokens, 1) << length << ": " << warm.statistics.not_reused;
      }
    }
  }
}

// To the end of the context, across every page's edge, with drafts that are good and others; states after a rejected
// draft show in all that follows.
TEST_P(Company, T92DraftsChangeNothing) {
  for (const Speculation speculation : {Speculation::ngram, Speculation::draft}) {
    Engine engine = load({.context = 320, .speculation = speculation, .draft_model = path});
    for (const std::size_t length : {60u, 127u, 190u}) {
      for (const float temperature : {0.0f, 1.0f}) {
        GenerateOptions how = options(temperature, -1);
        how.sampling.repetition_penalty = length == 127 ? 1.1f : 1.0f;
        const auto ids = prompt(engine, length);
        const Generation expected = engine.generate(ids, plain(how), nullptr).value();
        const Generation drafted = engine.generate(ids, how, nullptr).value();
        expect_same(drafted, expected);
        EXPECT_EQ(drafted.finish, FinishReason::length);
        EXPECT_EQ(drafted.ids.size() + length, 320u);
        // A model that drafts for itself is always right.
        if (speculation == Speculation::draft) {
          EXPECT_EQ(drafted.statistics.accepted_tokens, drafted.statistics.drafted_tokens);
          EXPECT_GT(drafted.statistics.accepted_tokens, 40);
        }
      }
    }
  }
}

// Another model of the same vocabulary drafts: it is right now and then.
TEST_P(Company, T92AnotherModelsDraftsChangeNothing) {
  // Qwen 3 and 3.5 share theirs.
  const std::string name = path.stem();
  if (!name.starts_with("qwen3-tiny") && !name.starts_with("qwen3_5-tiny")) {
    GTEST_SKIP() << "no other model has the vocabulary of " << name;
  }
  const std::string other = name.starts_with("qwen3-tiny") ? "qwen3_5-tiny" : "qwen3-tiny";
  const auto draft = path.parent_path().parent_path() / other / (other + "-Q8_0.gguf");
  Engine engine = load({.context = 320, .speculation = Speculation::draft, .draft_model = draft});
  for (const float temperature : {0.0f, 1.0f}) {
    const GenerateOptions how = options(temperature, -1);
    const auto ids = prompt(engine, 127);
    const Generation drafted = engine.generate(ids, how, nullptr).value();
    expect_same(drafted, engine.generate(ids, plain(how), nullptr).value());
    EXPECT_GT(drafted.statistics.drafted_tokens, drafted.statistics.accepted_tokens);
    EXPECT_GT(drafted.statistics.accepted_tokens, 0);
  }
}

// Answers to one prompt, of which one is cancelled at once and one after its first piece.
TEST_P(Company, CopiesSayWhatEachSaysAlone) {
  Engine engine = load();
  for (const std::size_t length : {63u, 64u, 65u, 200u}) {
    Request request;
    request.prompt = prompt(engine, length, 3);
    request.options = options(0.8f);
    std::vector<Answer> answers = engine.submit_copies(request, 5).value();
    answers[1].cancel();
    ASSERT_TRUE(answers[3].next());
    answers[3].cancel();
    for (const std::size_t i : {0u, 2u, 4u}) {
      GenerateOptions alone = plain(request.options);
      alone.sampling.seed = *request.options.sampling.seed + i;
      expect_same(answers[i].wait().value(), engine.generate(request.prompt, alone, nullptr).value());
    }
    EXPECT_EQ(answers[1].wait()->finish, FinishReason::cancelled);
    EXPECT_EQ(answers[3].wait()->finish, FinishReason::cancelled);
    EXPECT_EQ(engine.statistics().pages_in_use, 0);
    EXPECT_EQ(engine.statistics().slots_in_use, 0);
  }
}

// Memory for one long text and a little: the younger requests give way and come again.
TEST_P(Company, PreemptedOnesSayTheSame) {
  Engine engine = load({.context = 256});
  std::vector<Answer> answers;
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.prompt = prompt(engine, 50, i);
    request.options = options(0.7f, 110);
    answers.push_back(engine.submit(request).value());
  }
  for (int i = 0; i < 3; ++i) {
    expect_same(answers[static_cast<std::size_t>(i)].wait().value(),
                engine.generate(prompt(engine, 50, i), plain(options(0.7f, 110)), nullptr).value());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Company,
    testing::Values(ModelRow{nullptr, "llama-gqa-rope3/llama-gqa-rope3-Q8_0.gguf", false},
                    ModelRow{"ADZE_TEST_TINY_MODELS", "qwen3-tiny/qwen3-tiny-Q8_0.gguf", true},
                    ModelRow{"ADZE_TEST_TINY_MODELS", "gemma4-tiny/gemma4-tiny-Q8_0.gguf", true},
                    ModelRow{"ADZE_TEST_TINY_MODELS", "qwen3_5-tiny/qwen3_5-tiny-Q8_0.gguf", true},
                    ModelRow{"ADZE_TEST_ORACLES", "models/gemma3-text/gguf/gemma3-text-Q8_0.gguf", false},
                    ModelRow{"ADZE_TEST_ORACLES", "models/gemma4-e2b/gguf/gemma4-e2b-BF16.gguf", false},
                    ModelRow{"ADZE_TEST_ORACLES", "models/qwen3-moe/gguf/qwen3-moe-BF16.gguf", false},
                    ModelRow{"ADZE_TEST_ORACLES", "models/qwen3_5-moe/gguf/qwen3_5-moe-BF16.gguf", false}),
    row_name);

}  // namespace
}  // namespace adze::test
