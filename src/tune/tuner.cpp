#include "tune/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "tune/workload.hpp"

namespace adze::tune {
namespace {

using backend::Candidates;
using backend::Choice;
using backend::Knob;
using backend::Regime;

// Rows of the passes that stand for a few rows, and the longest pass that stands for many.
constexpr int kFewMeasured = 8;
constexpr double kLongestPassSeconds = 0.5;
constexpr int kLeastRounds = 7, kMostRounds = 30;
// A long context takes at most this share of the time to compute.
constexpr double kFillShare = 0.15;
constexpr int kCostRows[] = {1, 2, 3, 4, 6, 8, 12, 16};
constexpr int kChunks[] = {64, 96, 128, 192, 256, 384, kLongestChunk};
constexpr int kPromptTokens = 768;  // cut evenly by almost all of them
// Pieces of work of about the same length: knobs of five regimes, what they gain together, and the costs.
constexpr int kPieces = 26;

bool is_long(Regime regime) { return regime == Regime::one_long || regime == Regime::few_long; }

// Seconds of one candidate's passes, round by round: of each shape's dispatches together, and of whole passes ("").
using Times = std::map<std::string, std::vector<double>>;

class Tuner {
 public:
  Tuner(backend::Prepared& prepared, const ops::Plan& plan, const TuneSetup& setup)
      : prepared_(prepared),
        setup_(setup),
        work_(prepared, plan, setup.positions, setup.max_rows, setup.now),
        positions_(std::min(setup.positions, plan.context_length)) {}

  Result<Measured> run() {
    prepared_.choose({});
    prepared_.time_dispatches(&seconds_);
    const Status status = measure();
    prepared_.time_dispatches(nullptr);
    prepared_.choose(status ? out_.profile.choices : std::vector<Choice>{});
    if (!status) return tl::unexpected(status.error());
    return std::move(out_);
  }

 private:
  Status measure() {
    ADZE_TRY_STATUS(find_rows());
    if (setup_.positions >= kFewMeasured + 1) {
      ADZE_TRY_STATUS(tune(Regime::one_short));
      ADZE_TRY_STATUS(tune(Regime::few_short));
    }
    if (many_rows_ > backend::kFewRows) {
      ADZE_TRY_STATUS(tune(Regime::many));
      ADZE_TRY_STATUS(tune_chunk());
    }
    find_long_context();
    if (out_.profile.long_context > 0) {
      ADZE_TRY_STATUS(tune(Regime::one_long));
      ADZE_TRY_STATUS(tune(Regime::few_long));
    }
    settle_votes();
    return measure_costs();
  }

  // How many rows stand for many, so that a pass does not take too long.
  Status find_rows() {
    many_rows_ = std::min({setup_.chunk, setup_.max_rows, positions_});
    for (int warm = 0; warm < 2; ++warm) ADZE_TRY_STATUS(time_many());
    while (many_seconds_ > kLongestPassSeconds && many_rows_ / 2 > backend::kFewRows) {
      many_rows_ /= 2;
      ADZE_TRY_STATUS(time_many());
    }
    return {};
  }
  Status time_many() {
    ADZE_TRY_STATUS(work_.move_to(0));
    ADZE_TRY(many_seconds_, work_.pass(many_rows_));
    return {};
  }

  void find_long_context() {
    const double rate = many_rows_ / std::max(many_seconds_, 1e-9);
    const double affordable = rate * setup_.seconds * kFillShare;
    const int room = std::min(kLongestContext, positions_ - Workload::kRoom);
    int depth = std::min(room, static_cast<int>(std::min(affordable, 1e6)));
    depth -= depth % backend::kLongContext;
    if (depth >= backend::kLongContext) {
      out_.profile.long_context = depth;
    } else {
      out_.left_out.push_back(fmt::format("long contexts: {}", room < backend::kLongContext
                                                                   ? "the context is too short"
                                                                   : "computing one would take too long"));
    }
  }

  int rows_of(Regime regime) const {
    switch (regime) {
      case Regime::one_short:
      case Regime::one_long: return 1;
      case Regime::few_short:
      case Regime::few_long: return std::min(kFewMeasured, setup_.max_rows);
      case Regime::many: return many_rows_;
    }
    return 1;
  }

  // --- one regime ----------------------------------------------------------------------------------------------------

  Status tune(Regime regime) {
    ADZE_TRY_STATUS(work_.move_to(is_long(regime) ? out_.profile.long_context : 0));
    for (const Candidates& candidates : prepared_.candidates(regime)) {
      if (candidates.values.size() < 2) continue;
      if (candidates.knob == Knob::threads && !setup_.choose_threads) continue;
      ADZE_TRY_STATUS(try_values(regime, candidates));
    }
    return confirm(regime);
  }

  Status try_values(Regime regime, const Candidates& candidates) {
    std::vector<std::vector<Choice>> variants;
    for (const int value : candidates.values) {
      std::vector<Choice> choices = out_.profile.choices;
      for (const std::string& shape : candidates.shapes) {
        choices.push_back({regime, candidates.knob, shape, value});
      }
      variants.push_back(std::move(choices));
    }
    ADZE_TRY(std::vector<Times> times, measure(regime, variants));
    for (const std::string& shape : candidates.shapes) {
      choose(regime, candidates, shape, times);
    }
    return {};
  }

  void choose(Regime regime, const Candidates& candidates, const std::string& shape, std::vector<Times>& times) {
    std::optional<std::size_t> best;
    if (median(times[0][shape]) == 0.0) return;  // these passes do without it: a prompt's have no logits
    for (std::size_t v = 1; v < times.size(); ++v) {
      const Ratio ratio = speed_ratio(times[0][shape], times[v][shape]);
      out_.trials.push_back({{regime, candidates.knob, shape, candidates.values[v], ratio.median}, ratio.error});
      const std::size_t trial = out_.trials.size() - 1;
      if (!ratio.exceeds(kLeastGain)) continue;
      if (!best || out_.trials[*best].choice.gain < ratio.median) best = trial;
    }
    if (!best) return;
    (candidates.in_all_regimes ? votes_ : out_.profile.choices).push_back(out_.trials[*best].choice);
  }

  // Whether all choices of a regime together gain something where they act: in the products of their shapes, or in the
  // whole pass where one is for all of it. Else none is kept.
  Status confirm(Regime regime) {
    const auto of_regime = [&](const Choice& c) { return c.regime == regime; };
    std::vector<Choice> without = out_.profile.choices;
    std::erase_if(without, of_regime);
    const bool any = without.size() < out_.profile.choices.size();
    std::vector<std::vector<Choice>> variants{without};
    if (any) variants.push_back(out_.profile.choices);
    ADZE_TRY(std::vector<Times> times, measure(regime, variants));
    const double built_in = median(times.front()[""]);
    double chosen = median(times.back()[""]);
    if (any && !speed_ratio(where_chosen(regime, times.front()), where_chosen(regime, times.back())).exceeds(1.0)) {
      std::erase_if(out_.profile.choices, of_regime);
      chosen = built_in;
      out_.left_out.push_back(fmt::format("the choices for {}: together they gain nothing", describe(regime)));
    }
    out_.profile.gains.push_back({regime, 1e3 * built_in, 1e3 * chosen});
    return {};
  }

  // Of each round, the seconds of what a regime's choices act on.
  std::vector<double> where_chosen(Regime regime, Times& times) const {
    std::set<std::string> shapes;
    for (const Choice& choice : out_.profile.choices) {
      if (choice.regime == regime) shapes.insert(choice.shape);
    }
    if (shapes.contains("")) shapes = {""};
    std::vector<double> sums(times[""].size(), 0.0);
    for (const std::string& shape : shapes) {
      for (std::size_t round = 0; round < sums.size(); ++round) sums[round] += times[shape][round];
    }
    return sums;
  }

  // A knob that costs memory where regimes differ is kept only where all of them that have the shape agree.
  void settle_votes() {
    for (const Choice& vote : votes_) {
      const auto is_of = [&](const Choice& other, Regime regime) {
        return other.regime == regime && other.knob == vote.knob && other.shape == vote.shape;
      };
      const auto agrees = [&](const RegimeGain& measured) {
        const auto tried = [&](const Trial& trial) { return is_of(trial.choice, measured.regime); };
        const auto same = [&](const Choice& other) {
          return is_of(other, measured.regime) && other.value == vote.value;
        };
        return std::ranges::none_of(out_.trials, tried) || std::ranges::any_of(votes_, same);
      };
      if (std::ranges::all_of(out_.profile.gains, agrees)) out_.profile.choices.push_back(vote);
    }
    for (Trial& trial : out_.trials) {
      trial.chosen = std::ranges::find(out_.profile.choices, trial.choice) != out_.profile.choices.end();
    }
  }

  // --- prompts and costs ---------------------------------------------------------------------------------------------

  Status tune_chunk() {
    const int tokens = std::min(kPromptTokens, positions_ - 1);
    std::vector<int> values{setup_.chunk};
    for (const int chunk : kChunks) {
      if (chunk != setup_.chunk && chunk <= setup_.max_rows && chunk < tokens) values.push_back(chunk);
    }
    const double each = many_seconds_ * tokens / many_rows_;
    const int rounds = rounds_for(each, 2.0 * piece_seconds(), values.size(), kLeastRounds);
    if (!setup_.choose_chunk) return {};
    if (values.size() < 2) {
      out_.left_out.emplace_back("rows of a prompt's passes: the context is too short for others");
      return {};
    }
    if (each * kLeastRounds > setup_.seconds / 8) {
      out_.left_out.emplace_back("rows of a prompt's passes: measuring them would take too long");
      return {};
    }
    prepared_.choose(out_.profile.choices);
    std::vector<Times> times(values.size());
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t v = (i + static_cast<std::size_t>(round)) % values.size();
        ADZE_TRY(const double seconds, work_.prompt(tokens, values[v]));
        times[v][""].push_back(seconds);
      }
      ADZE_TRY_STATUS(go_on());
    }
    choose(Regime::many, {Knob::chunk, values}, "", times);
    ++pieces_;
    return {};
  }

  Status measure_costs() {
    prepared_.choose(out_.profile.choices);
    std::vector<int> counts;
    for (const int rows : kCostRows) {
      if (rows <= setup_.max_rows && rows <= positions_) counts.push_back(rows);
    }
    for (const int rows : counts) out_.profile.costs.push_back({.rows = rows});
    std::vector<int> depths{0};
    if (out_.profile.long_context > 0) depths.push_back(out_.profile.long_context);
    for (const int depth : depths) {
      ADZE_TRY_STATUS(work_.move_to(depth));
      std::vector<std::vector<double>> seconds(counts.size());
      int rounds = kLeastRounds;
      for (int round = 0; round < rounds; ++round) {
        const double begin = setup_.now();
        for (std::size_t i = 0; i < counts.size(); ++i) {
          ADZE_TRY(const double one, work_.pass(counts[i]));
          seconds[i].push_back(one);
        }
        const double all = setup_.now() - begin;
        if (round == 0) rounds = rounds_for(all, piece_seconds(), 1, 3);
        ADZE_TRY_STATUS(go_on());
      }
      for (std::size_t i = 0; i < counts.size(); ++i) {
        Cost& entry = out_.profile.costs[i];
        (depth == 0 ? entry.short_ms : entry.long_ms) = 1e3 * median(seconds[i]);
      }
      ++pieces_;
    }
    return {};
  }

  // --- measuring -----------------------------------------------------------------------------------------------------

  // Seconds of each variant's passes, in turns.
  Result<std::vector<Times>> measure(Regime regime, const std::vector<std::vector<Choice>>& variants) {
    std::vector<Times> times(variants.size());
    int rounds = kLeastRounds;
    for (int round = -1; round < rounds; ++round) {  // the first one warms up, and tells how many there can be
      const double begin = setup_.now();
      for (std::size_t i = 0; i < variants.size(); ++i) {
        const std::size_t v = (i + static_cast<std::size_t>(round + 1)) % variants.size();
        prepared_.choose(variants[v]);
        ADZE_TRY(const double whole, work_.pass(rows_of(regime)));
        if (round < 0) continue;
        times[v][""].push_back(whole);
        add_dispatches(times[v]);
      }
      const double all = setup_.now() - begin;
      if (round < 0) rounds = rounds_for(all, piece_seconds(), 1, kLeastRounds);
      ADZE_TRY_STATUS(go_on());
    }
    ++pieces_;
    return times;
  }

  void add_dispatches(Times& times) {
    std::map<std::string, double> of_shape;
    const auto& dispatches = prepared_.schedule().dispatches;
    for (std::size_t i = 0; i < dispatches.size() && i < seconds_.size(); ++i) {
      if (!dispatches[i].shape.empty()) of_shape[dispatches[i].shape] += seconds_[i];
    }
    for (const auto& [shape, seconds] : of_shape) times[shape].push_back(seconds);
  }

  double piece_seconds() const { return setup_.seconds / kPieces; }
  static int rounds_for(double seconds_each, double seconds, std::size_t variants, int least) {
    const double rounds = seconds / std::max(seconds_each * static_cast<double>(variants), 1e-9);
    return std::clamp(static_cast<int>(std::min(rounds, 1e6)), least, kMostRounds);
  }
  Status go_on() {
    const double share = std::min(1.0, static_cast<double>(pieces_) / kPieces);
    if (!setup_.progress || setup_.progress(share)) return {};
    return fail(ErrorCode::cancelled, "stopped");
  }

  backend::Prepared& prepared_;
  const TuneSetup& setup_;
  Workload work_;
  const int positions_;
  int many_rows_ = 0;
  double many_seconds_ = 0.0;
  std::vector<double> seconds_;  // of the last pass's dispatches
  std::vector<Choice> votes_;
  int pieces_ = 0;  // done
  Measured out_;
};

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<Measured> measure_profile(backend::Prepared& prepared, const ops::Plan& plan, const TuneSetup& setup) {
  return Tuner(prepared, plan, setup).run();
}

Result<Rates> measure_rates(backend::Prepared& prepared, const ops::Plan& plan, const TuneSetup& setup) {
  Workload work(prepared, plan, setup.positions, setup.max_rows, setup.now);
  int rows = std::min({setup.chunk, setup.max_rows, setup.positions});
  std::vector<double> one, many;
  const double begin = setup.now();
  for (int round = -1; round < kLeastRounds; ++round) {
    ADZE_TRY_STATUS(work.move_to(0));
    ADZE_TRY(const double many_seconds, work.pass(rows));
    ADZE_TRY_STATUS(work.move_to(0));
    std::vector<double> singles;
    for (int i = 0; i < kLeastRounds; ++i) {
      ADZE_TRY(const double seconds, work.pass(1));
      singles.push_back(seconds);
    }
    if (setup.progress && !setup.progress(1.0)) return fail(ErrorCode::cancelled, "stopped");
    if (round < 0) {
      if (many_seconds > kLongestPassSeconds) rows = std::max(1, rows / 2);
      continue;
    }
    many.push_back(many_seconds);
    one.push_back(median(singles));
    if (setup.now() - begin > setup.seconds) break;
  }
  return Rates{.generate = 1.0 / median(one), .prompt = rows / median(many)};
}

}  // namespace adze::tune
