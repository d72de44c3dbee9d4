// The tuner on a backend whose clock is a formula: what it chooses, what it leaves, what it reports.
#include "tune/tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace adze::tune {
namespace {

using backend::Candidates;
using backend::Choice;
using backend::Knob;
using backend::Regime;

constexpr int kVocabulary = 11;

// Two shapes. Time is what this says, with noise: a pass of a few rows takes 1 ms a shape and 0.1 ms a row, and one
// of many as much for each row, however many they are.
class Formula final : public backend::Prepared {
 public:
  Formula() {
    schedule_.dispatches.resize(3);
    schedule_.dispatches[0].shape = "A";
    schedule_.dispatches[2].shape = "B";
  }
  // How much faster a choice makes its part.
  std::function<double(Regime, Knob, const std::string& shape, int value)> gain = [](Regime, Knob, const std::string&,
                                                                                     int) { return 1.0; };
  double noise = 0.01;

  const backend::Schedule& schedule() const override { return schedule_; }
  backend::MemoryUse memory() const override { return {}; }
  std::span<const float> logits(int) const override { return {}; }
  void copy_page(backend::PageGroup, std::int32_t, std::int32_t) override {}
  void copy_state(std::int32_t, std::int32_t) override {}
  void observe(backend::StepObserver*) override {}
  std::vector<Candidates> candidates(Regime) const override {
    return {{Knob::threads, {4, 2, 1}},
            {Knob::layout, {1, 0}, {"A", "B"}, true},
            {Knob::prefetch, {2048, 0, 4096}, {"A", "B"}}};
  }
  void choose(std::span<const Choice> choices) override { choices_.assign(choices.begin(), choices.end()); }
  void time_dispatches(std::vector<double>* seconds) override { seconds_ = seconds; }

  Status run(const backend::Batch& batch) override {
    const auto rows = static_cast<int>(batch.rows.size());
    const int last = batch.rows.back().position;
    if (last / backend::kPageTokens >= static_cast<int>(batch.sequences[0].full.size())) {
      return fail(ErrorCode::invalid_argument, "a position outside its pages");
    }
    longest_ = std::max(longest_, last + 1);
    const Regime regime = backend::regime_of(rows, last);
    std::normal_distribution<double> normal(1.0, noise);
    const double base = (rows > backend::kFewRows ? 1e-4 * rows : 1e-3 + 1e-4 * rows) + 1e-7 * last;
    std::vector<double> parts{base, 1e-6, base};
    for (const Choice& c : choices_) {
      if (c.regime != regime) continue;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (c.shape.empty() || c.shape == schedule_.dispatches[i].shape) {
          parts[i] /= gain(c.regime, c.knob, c.shape, c.value);
        }
      }
    }
    double whole = 0.0;
    for (double& part : parts) whole += part *= std::max(0.5, normal(random_));
    if (seconds_ != nullptr) *seconds_ = std::move(parts);
    now_ += whole;
    return {};
  }
  double now() const { return now_; }
  int longest() const { return longest_; }

 private:
  backend::Schedule schedule_;
  std::vector<Choice> choices_;
  std::vector<double>* seconds_ = nullptr;
  std::mt19937 random_{7};
  double now_ = 0.0;
  int longest_ = 0;
};

ops::Plan plan_of(int context) {
  ops::Plan plan;
  plan.vocabulary_size = kVocabulary;
  plan.context_length = context;
  return plan;
}

TuneSetup setup_for(const Formula& formula, int positions) {
  return {.positions = positions, .max_rows = 512, .chunk = 96, .seconds = 20, .now = [&] { return formula.now(); }};
}

auto chooses(Regime regime, Knob knob, const std::string& shape, int value) {
  return testing::AllOf(testing::Field(&Choice::regime, regime), testing::Field(&Choice::knob, knob),
                        testing::Field(&Choice::shape, shape), testing::Field(&Choice::value, value));
}

TEST(Tuner, ChoosesWhatIsFasterForEachShapeAndRegime) {
  Formula formula;
  formula.gain = [](Regime regime, Knob knob, const std::string& shape, int value) {
    if (knob == Knob::prefetch && regime == Regime::one_short && shape == "A") return value == 4096 ? 1.3 : 1.0;
    if (knob == Knob::prefetch && regime == Regime::few_long && shape == "B") return value == 0 ? 1.2 : 1.0;
    if (knob == Knob::threads && regime == Regime::many) return value == 2 ? 1.25 : 1.0;
    return 1.0;
  };
  const ops::Plan plan = plan_of(8192);
  const auto measured = measure_profile(formula, plan, setup_for(formula, 4096 + 512));
  ASSERT_TRUE(measured) << measured.error().message;
  const Profile& profile = measured->profile;
  EXPECT_THAT(profile.choices, testing::UnorderedElementsAre(chooses(Regime::one_short, Knob::prefetch, "A", 4096),
                                                             chooses(Regime::few_long, Knob::prefetch, "B", 0),
                                                             chooses(Regime::many, Knob::threads, "", 2)));
  for (const Choice& choice : profile.choices) EXPECT_NEAR(choice.gain, 1.25, 0.08);
  EXPECT_EQ(profile.long_context, 4096);
  EXPECT_LE(formula.longest(), 4096 + 512);
  EXPECT_EQ(profile.gains.size(), static_cast<std::size_t>(backend::kRegimes));
  // All that was tried is told of, the losers too.
  EXPECT_TRUE(std::ranges::any_of(measured->trials, [](const Trial& t) { return !t.chosen && t.choice.value == 1; }));
  EXPECT_TRUE(measured->left_out.empty());
  // The costs ascend, and a long context costs more.
  const auto& entries = profile.costs;
  ASSERT_EQ(entries.size(), 8u);
  EXPECT_LT(entries.front().short_ms, entries.back().short_ms);
  EXPECT_NEAR(entries.front().short_ms, 2.2, 0.4);
  for (const auto& entry : entries) EXPECT_GT(entry.long_ms, entry.short_ms);
}

TEST(Tuner, TakesNoNoiseForAGain) {
  Formula formula;
  formula.noise = 0.15;
  const ops::Plan plan = plan_of(2048);
  const auto measured = measure_profile(formula, plan, setup_for(formula, 2048));
  ASSERT_TRUE(measured);
  for (const Choice& c : measured->profile.choices) {
    ADD_FAILURE() << describe(c.regime) << ": " << describe(c.knob, c.value) << ' ' << c.shape << ", " << c.gain;
  }
}

// A layout that pays in some regimes only would keep both layouts in memory.
TEST(Tuner, KeepsALayoutOnlyWhereAllRegimesAgree) {
  for (const bool everywhere : {false, true}) {
    Formula formula;
    formula.gain = [&](Regime regime, Knob knob, const std::string& shape, int value) {
      const bool pays = everywhere || regime != Regime::many;
      return knob == Knob::layout && shape == "A" && value == 0 && pays ? 1.4 : 1.0;
    };
    const ops::Plan plan = plan_of(8192);
    const auto measured = measure_profile(formula, plan, setup_for(formula, 4096 + 512));
    ASSERT_TRUE(measured);
    EXPECT_EQ(measured->profile.choices.size(), everywhere ? 5u : 0u);
  }
}

TEST(Tuner, LeavesOutWhatTheContextHasNoRoomFor) {
  Formula formula;
  const ops::Plan plan = plan_of(512);
  const auto measured = measure_profile(formula, plan, setup_for(formula, 512));
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->profile.long_context, 0);
  for (const Cost& cost : measured->profile.costs) EXPECT_EQ(cost.long_ms, 0.0);
  ASSERT_EQ(measured->left_out.size(), 1u);
  EXPECT_EQ(measured->left_out[0], "long contexts: the context is too short");
}

TEST(Tuner, EndsWhenItIsTold) {
  Formula formula;
  const ops::Plan plan = plan_of(2048);
  TuneSetup setup = setup_for(formula, 2048);
  setup.progress = [](double share) { return share < 0.1; };
  const auto measured = measure_profile(formula, plan, setup);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace adze::tune
