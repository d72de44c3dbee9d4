#include "backend/cpu/cpu_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/cpu_features.hpp"

namespace adze::cpu {
namespace {

using backend::Candidates;
using backend::Choice;
using backend::Knob;
using backend::Regime;

// How far ahead of the products their weights are fetched: a model that stays in the last cache is read 1.5 times as
// fast from 8 KiB ahead as from 2, one that comes from memory 0.85 times (lab/README.md). A quarter of that cache:
// others share it.
constexpr int kAheadInCache = 8192, kAheadInMemory = 2048;

constexpr std::size_t index(Regime regime) { return static_cast<std::size_t>(regime); }

// The built-in value, then the others without it.
std::vector<int> first_and_others(int first, std::initializer_list<int> others, int most) {
  std::vector<int> values{first};
  for (const int value : others) {
    if (value != first && value <= most) values.push_back(value);
  }
  return values;
}

}  // namespace

Tuning::Tuning(const KernelTable& table, int threads) : table_(table), all_threads_(threads) { set_packed_bytes(0); }

void Tuning::set_packed_bytes(std::uint64_t bytes) {
  ahead_ = bytes <= last_cache_bytes() / 4 ? kAheadInCache : kAheadInMemory;
  choose({});
}

Tuning::Shape* Tuning::find(const std::string& name) {
  const auto found = std::ranges::find(shapes_, name, &Shape::name);
  return found == shapes_.end() ? nullptr : &*found;
}

const ProductTuning* Tuning::shape(const std::string& name, ProductKind kind) {
  if (const Shape* known = find(name); known != nullptr) return known->now.get();
  shapes_.push_back({name, kind, {}, std::make_unique<ProductTuning>()});
  return shapes_.back().now.get();
}

std::vector<std::string> Tuning::names_of(bool ProductKind::* kind) const {
  std::vector<std::string> names;
  for (const Shape& shape : shapes_) {
    if (shape.kind.*kind) names.push_back(shape.name);
  }
  return names;
}

std::vector<Candidates> Tuning::candidates(Regime regime) const {
  std::vector<Candidates> all;
  std::vector<int> threads{all_threads_};
  for (int n = all_threads_ / 2; n >= 1; n /= 2) threads.push_back(n);
  all.push_back({Knob::threads, std::move(threads)});
  if (regime == Regime::many) {
    all.push_back({Knob::tile, first_and_others(table_.max_tile, {12, 8, 6, 4, 2}, table_.max_tile)});
  }
  all.push_back({Knob::layout, {1, 0}, names_of(&ProductKind::packable), true});
  all.push_back({Knob::pair, {1, 0}, names_of(&ProductKind::pair)});
  all.push_back({Knob::prefetch, first_and_others(ahead_, {0, 1024, 2048, 4096, 8192}, 8192),
                 names_of(&ProductKind::prefetched)});
  std::erase_if(all, [](const Candidates& c) { return c.shapes.empty(); });
  return all;
}

bool Tuning::may_choose(const Choice& choice) const {
  const std::vector<Candidates> all = candidates(choice.regime);
  const auto knob = std::ranges::find(all, choice.knob, &Candidates::knob);
  return knob != all.end() && std::ranges::find(knob->values, choice.value) != knob->values.end() &&
         std::ranges::find(knob->shapes, choice.shape) != knob->shapes.end();
}

void Tuning::apply(const Choice& choice) {
  const auto set = [&](auto set_value) { set_value(find(choice.shape)->chosen[index(choice.regime)]); };
  switch (choice.knob) {
    case Knob::threads: threads_[index(choice.regime)] = choice.value; break;
    case Knob::tile: tiles_[index(choice.regime)] = choice.value; break;
    case Knob::layout: set([&](ProductTuning& t) { t.packed = choice.value != 0; }); break;
    case Knob::pair: set([&](ProductTuning& t) { t.pair_at_once = choice.value != 0; }); break;
    case Knob::prefetch: set([&](ProductTuning& t) { t.ahead = static_cast<std::size_t>(choice.value); }); break;
    case Knob::chunk: break;  // no candidate of ours
  }
}

void Tuning::choose(std::span<const Choice> choices) {
  threads_.fill(all_threads_);
  tiles_.fill(table_.max_tile);
  for (Shape& shape : shapes_) shape.chosen.fill({.ahead = static_cast<std::size_t>(ahead_)});
  choices_.clear();
  for (const Choice& choice : choices) {
    if (!may_choose(choice)) continue;
    apply(choice);
    choices_.push_back(choice);
  }
  enter(regime_);
}

void Tuning::enter(Regime regime) {
  regime_ = regime;
  for (Shape& shape : shapes_) {
    *shape.now = shape.chosen[index(regime)];
    shape.now->max_tile = max_tile();
  }
}

std::string Tuning::reason(Knob knob) const {
  switch (knob) {
    case Knob::threads: return "one for each core, or as many as were asked for";
    case Knob::tile: return fmt::format("as many rows as the registers of {} hold", table_.name);
    case Knob::layout: return "one stream in the order of the kernel";
    case Knob::pair: return "the inputs are loaded once";
    case Knob::prefetch:
      return ahead_ == kAheadInCache ? "the weights stay in the last cache" : "the weights come from memory";
    case Knob::chunk: break;
  }
  return "";
}

std::vector<std::string> Tuning::describe(const std::string& name) const {
  std::vector<std::string> lines;
  for (const Candidates& c : candidates(Regime::many)) {
    if (std::ranges::find(c.shapes, name) == c.shapes.end()) continue;
    lines.push_back(fmt::format("built-in: {} ({})", backend::describe(c.knob, c.values.front()), reason(c.knob)));
    for (const Choice& choice : choices_) {
      if (choice.knob != c.knob || choice.shape != name) continue;
      lines.push_back(fmt::format("profile: {} for {}, {:.2f} times the built-in",
                                  backend::describe(choice.knob, choice.value), backend::describe(choice.regime),
                                  choice.gain));
    }
  }
  return lines;
}

}  // namespace adze::cpu
