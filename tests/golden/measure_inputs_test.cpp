// What the engine measures for an importance matrix, against sums over the inputs that the reference steps see.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "adze/adze.hpp"
#include "base/file.hpp"
#include "format/gguf.hpp"
#include "golden/oracle.hpp"
#include "ops/ref/interpreter.hpp"

namespace adze::test {
namespace {

using ops::ref::Rows;

// Sums by weight, made of whole matrices and plain loops.
class ReferenceSums {
 public:
  explicit ReferenceSums(const ops::Plan& plan) : plan_(plan), buffers_(plan.buffers.size()) {}

  void run(std::span<const std::int32_t> tokens) {
    ops::ref::Interpreter interpreter(plan_);
    int last = -1;
    interpreter.run(tokens, 1, [&](int step, ops::BufferId buffer, const Rows& values) {
      if (step != last) visit(plan_.steps[static_cast<std::size_t>(step)]);
      last = step;
      buffers_[static_cast<std::size_t>(buffer)] = values;
    });
  }
  struct Sums {
    std::vector<double> squares, counts;
  };
  const std::map<std::string, Sums>& sums() const { return sums_; }

 private:
  // The buffers are still those from before the step.
  void visit(const ops::Step& step) {
    if (const auto* project = std::get_if<ops::Project>(&step)) {
      for (const auto& part : project->parts) add_all(part.weight, at(project->in));
    } else if (const auto* add = std::get_if<ops::ProjectAdd>(&step)) {
      add_all(add->weight, at(add->in));
    } else if (const auto* pair = std::get_if<ops::GatedPair>(&step)) {
      add_all(pair->gate, at(pair->in));
      if (pair->up != nullptr && pair->up->name != pair->gate->name) add_all(pair->up, at(pair->in));
    } else if (const auto* route = std::get_if<ops::Route>(&step)) {
      add_all(route->weight, at(route->in));
    } else if (const auto* experts = std::get_if<ops::Experts>(&step)) {
      visit_experts(*experts);
    }
  }
  void visit_experts(const ops::Experts& s) {
    const Rows &in = at(s.in), &routes = at(s.routes);
    for (int r = 0; r < in.count; ++r) {
      for (int slot = 0; slot < s.slots; ++slot) {
        const int expert = static_cast<int>(routes[r][static_cast<std::size_t>(slot)]);
        const bool shared = expert == s.routed.count;
        const ops::Experts::Weights& w = shared ? s.shared : s.routed;
        const int index = shared ? 0 : expert;
        const std::vector<float> x(in[r].begin(), in[r].end());
        add(w.gate, w.count, index, x);
        if (w.up->name != w.gate->name) add(w.up, w.count, index, x);
        add(w.down, w.count, index, activated(s, w, index, x));
      }
    }
  }
  static std::vector<float> activated(const ops::Experts& s, const ops::Experts::Weights& w, int expert,
                                      const std::vector<float>& x) {
    const auto product = [&](ops::WeightRef weight, std::int64_t row, ops::WeightRef bias, int i) {
      std::vector<float> values(x.size());
      tensor::dequantise_row(weight->type, weight->row(row), values.data(), weight->columns());
      double sum = 0;
      for (std::size_t c = 0; c < x.size(); ++c) sum += static_cast<double>(values[c]) * static_cast<double>(x[c]);
      if (bias == nullptr) return sum;
      std::vector<float> biases(static_cast<std::size_t>(w.width));
      tensor::dequantise_row(bias->type, bias->row(expert), biases.data(), w.width);
      return sum + static_cast<double>(biases[static_cast<std::size_t>(i)]);
    };
    std::vector<float> out;
    for (int i = 0; i < w.width; ++i) {
      const std::int64_t row = std::int64_t{expert} * w.width + i;
      const double gate = product(w.gate, row, w.gate_bias, i), up = product(w.up, row, w.up_bias, i);
      out.push_back(static_cast<float>(ops::ref::gated(s.activation, gate, up)));
    }
    return out;
  }
  const Rows& at(ops::BufferId id) const { return buffers_[static_cast<std::size_t>(id)]; }
  void add_all(ops::WeightRef weight, const Rows& rows) {
    for (int r = 0; r < rows.count; ++r) add(weight, 1, 0, {rows[r].begin(), rows[r].end()});
  }
  void add(ops::WeightRef weight, int count, int index, const std::vector<float>& row) {
    Sums& sums = sums_[std::string(weight->name)];
    sums.squares.resize(static_cast<std::size_t>(count) * row.size());
    sums.counts.resize(static_cast<std::size_t>(count));
    sums.counts[static_cast<std::size_t>(index)] += 1;
    for (std::size_t c = 0; c < row.size(); ++c) {
      sums.squares[static_cast<std::size_t>(index) * row.size() + c] += std::pow(static_cast<double>(row[c]), 2);
    }
  }

  const ops::Plan& plan_;
  std::vector<Rows> buffers_;
  std::map<std::string, Sums> sums_;
};

class MeasuredInputs : public OracleTest {};

TEST_P(MeasuredInputs, AreTheReferencesSums) {
  const Oracle oracle(GetParam().model);
  const OracleModel loaded = load_oracle(oracle, GetParam().type);
  const std::vector<std::vector<std::int32_t>> windows = {oracle.prompt("p70"), oracle.prompt("p7")};
  ReferenceSums reference(loaded.model->plan());
  for (const auto& window : windows) reference.run(window);

  auto engine = Engine::load(oracle.gguf(GetParam().type),
                             {.threads = 2, .context = 128, .compute = ComputeType::f32, .chunk = 32});
  ASSERT_TRUE(engine) << engine.error().message;
  std::vector<std::size_t> progress;
  const auto measured = engine->measure_inputs(windows, [&](std::size_t done) {
    progress.push_back(done);
    return true;
  });
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(progress, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(measured->size(), reference.sums().size());
  for (const Engine::InputSquares& squares : *measured) {
    const auto found = reference.sums().find(squares.weight);
    ASSERT_NE(found, reference.sums().end()) << squares.weight;
    const auto& [expected, counts] = found->second;
    EXPECT_EQ(squares.counts, std::vector<float>(counts.begin(), counts.end())) << squares.weight;
    EXPECT_LT(rel_rms(squares.sums, std::vector<float>(expected.begin(), expected.end())), 1e-4) << squares.weight;
  }
}

// A dense model; experts with a shared one beside them, and recurrent layers; experts with biases in one stacked
// tensor.
INSTANTIATE_TEST_SUITE_P(Oracles, MeasuredInputs,
                         testing::Values(OracleRow{"llama-gqa-rope3", "BF16"}, OracleRow{"qwen3_5-moe", "BF16"},
                                         OracleRow{"gpt-oss", "MXFP4"}, OracleRow{"gemma4-moe", "BF16"},
                                         OracleRow{"gemma4-e2b", "BF16"}),
                         [](const auto& test) { return oracle_row_name(test.param); });

TEST(MeasureInputs, OfAModelWithANaNAreRefusedByTheWeightsName) {
  const Oracle oracle("llama-gqa-rope3");
  std::string bytes = read_file(oracle.gguf("BF16"), 1 << 24).value();
  const auto file = format::GgufFile::open(oracle.gguf("BF16"));
  ASSERT_TRUE(file) << file.error().message;
  const format::GgufTensor* damaged = file->find_tensor("blk.1.attn_v.weight");
  ASSERT_NE(damaged, nullptr);
  bytes.replace(damaged->file_offset, 2, "\xc0\x7f");  // a NaN in bfloat16
  const auto path = std::filesystem::path(::testing::TempDir()) / "adze_measure_nan.gguf";
  ASSERT_TRUE(write_file_atomic(path, std::string_view(bytes)));
  auto engine = Engine::load(path, {.threads = 2, .context = 128, .compute = ComputeType::f32, .chunk = 32});
  ASSERT_TRUE(engine) << engine.error().message;
  const std::vector<std::vector<std::int32_t>> windows = {oracle.prompt("p7")};
  const auto measured = engine->measure_inputs(windows, nullptr);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code, ErrorCode::non_finite);
  EXPECT_NE(measured.error().message.find("'blk.1.attn_output.weight'"), std::string::npos) << measured.error().message;
}

}  // namespace
}  // namespace adze::test
