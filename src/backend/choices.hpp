// What may be chosen for a prepared plan without changing a bit of what it computes: among kernels of one numeric
// class, and how they are driven. Built-in rules choose; a profile that was measured on this machine (tune/profile.hpp)
// may choose otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adze::backend {

// Passes that are alike: by their rows, and by how much context the rows of a few look back on.
enum class Regime : std::uint8_t { one_short, one_long, few_short, few_long, many };
inline constexpr int kRegimes = 5;
inline constexpr int kFewRows = 16;        // more rows than these are many
inline constexpr int kLongContext = 1024;  // positions before a row from which on its context is long
constexpr Regime regime_of(int rows, int last_position) {
  const bool is_long = last_position >= kLongContext;
  if (rows > kFewRows) return Regime::many;
  if (rows > 1) return is_long ? Regime::few_long : Regime::few_short;
  return is_long ? Regime::one_long : Regime::one_short;
}

enum class Knob : std::uint8_t {
  threads,   // of the team that compute
  tile,      // rows of activations that a kernel takes at once, at most
  layout,    // weights as 1: packed, 0: the file has them
  pair,      // gate and up 1: in one pass over the inputs, 0: as two products
  prefetch,  // bytes of weights that are fetched before they are needed
  chunk,     // rows of a prompt's passes; chosen by who makes the passes
};
inline constexpr int kKnobs = 6;

struct Choice {
  Regime regime = Regime::one_short;
  Knob knob = Knob::threads;
  std::string shape;  // of the products that it is for (DispatchInfo::shape); empty: of all
  int value = 0;
  double gain = 1.0;  // times the speed of what the built-in rule chooses
  bool operator==(const Choice&) const = default;
};

// Values that a knob may be given in one regime, the built-in rule's first.
struct Candidates {
  Knob knob;
  std::vector<int> values;
  std::vector<std::string> shapes{""};  // that may each have a value of its own; "": one for whole passes
  bool in_all_regimes = false;          // one value in all regimes, or it costs memory twice
};

// Words for files, which are read again, and for people.
std::string_view knob_word(Knob knob);        // "prefetch"
std::string_view regime_word(Regime regime);  // "one_short"
std::optional<Knob> knob_of(std::string_view word);
std::optional<Regime> regime_of(std::string_view word);
std::string_view describe(Regime regime);    // "1 row, short context"
std::string describe(Knob knob, int value);  // "prefetch 2048 bytes ahead"

// The choice for a knob of one shape (or of all) in a regime; nothing: the built-in rule's.
const Choice* find_choice(std::span<const Choice> choices, Regime regime, Knob knob, std::string_view shape = {});

}  // namespace adze::backend
