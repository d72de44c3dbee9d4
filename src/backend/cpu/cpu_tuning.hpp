// The choices of a prepared plan as its passes use them: what the products of each shape do in the regime of the pass
// that runs, from the built-in rules and from a profile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/choices.hpp"
#include "backend/cpu/kernel_table.hpp"

namespace adze::cpu {

// Of the products of one shape, in one regime.
struct ProductTuning {
  std::size_t ahead = 0;     // MatmulArgs::ahead
  int max_tile = 1;          // MatmulArgs::max_tile: Tuning::max_tile(), by which rows are rounded
  bool packed = true;        // read packed weights, where there are some
  bool pair_at_once = true;  // gate and up of one weight type in one pass
};

inline constexpr ProductTuning kUntuned;

// What there is to choose for the products of a shape.
struct ProductKind {
  bool pair = false;        // gate and up of one weight type
  bool packable = false;    // each of them
  bool prefetched = false;  // by kernels that do so: those of int8
};

class Tuning {
 public:
  Tuning(const KernelTable& table, int threads);

  // Adds a shape, before the first choose(). The tuning of its products stands there for good, and changes with
  // choose() and enter().
  const ProductTuning* shape(const std::string& name, ProductKind kind);

  // Of all packed weights together, before the first choose().
  void set_packed_bytes(std::uint64_t bytes);

  // Values of a regime's knobs, and those that a shape may take.
  std::vector<backend::Candidates> candidates(backend::Regime regime) const;
  // Replaces what was chosen before. Choices for shapes that are not here, or of values that are no candidates, are
  // left out. Between passes.
  void choose(std::span<const backend::Choice> choices);
  // From now on `regime` is that of the pass. Between passes.
  void enter(backend::Regime regime);

  int threads() const { return threads_[static_cast<std::size_t>(regime_)]; }
  int max_tile() const { return tiles_[static_cast<std::size_t>(regime_)]; }

  // For people: what was chosen for the products of a shape, or (shape empty) for whole passes, and why.
  std::vector<std::string> describe(const std::string& shape) const;

 private:
  template <class T>
  using ByRegime = std::array<T, backend::kRegimes>;
  struct Shape {
    std::string name;
    ProductKind kind;
    ByRegime<ProductTuning> chosen;
    std::unique_ptr<ProductTuning> now;
  };
  std::vector<std::string> names_of(bool ProductKind::* kind) const;
  Shape* find(const std::string& name);
  bool may_choose(const backend::Choice& choice) const;
  void apply(const backend::Choice& choice);
  std::string reason(backend::Knob knob) const;

  const KernelTable& table_;
  const int all_threads_;
  int ahead_ = 0;  // the built-in rule's
  std::vector<Shape> shapes_;
  ByRegime<int> threads_, tiles_;
  std::vector<backend::Choice> choices_;  // that apply
  backend::Regime regime_ = backend::Regime::one_short;
};

}  // namespace adze::cpu
