// Stop strings in a stream of text. Text is given out only when no stop string can still swallow it, and the result
// does not depend on how the text was cut into pieces: the stop that completes first ends the text, of several that
// complete at the same byte the longest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace adze::engine {

class StopMatcher {
 public:
  // Errors: invalid_argument (an empty stop, one that is not UTF-8, more than kMaxStops or kMaxStopBytes).
  static Result<StopMatcher> create(const std::vector<std::string>& stops);
  StopMatcher() = default;  // no stops: everything is certain at once

  // Reads `text` and appends to `out` what has become certain. True when a stop string was completed: `out` then has
  // all the text before it, what followed it in `text` is dropped, and nothing more may be fed.
  bool feed(std::string_view text, std::string& out);
  // The end of the stream: what was held back is text after all.
  void flush(std::string& out);

  // The stop string that was completed; empty: none was.
  std::string_view match() const { return match_; }

 private:
  // Knuth, Morris and Pratt: fallback[n] is the longest proper prefix of the stop that is a suffix of its first n
  // bytes.
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> fallback;
    std::size_t matched = 0;  // the longest prefix of the stop that ends the text so far
  };
  static void advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;
  std::string match_;
};

}  // namespace adze::engine
