// From the API's options to what the rooms below take, with errors that name the field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adze/adze.hpp"
#include "sample/parameters.hpp"
#include "text/tokenizer.hpp"

namespace adze::engine {

// All but the seed, the DRY breakers and the bans, which need the engine.
sample::SamplerParameters to_parameters(const SamplingOptions& options);

// -1 becomes "as many as fit". Errors: invalid_argument below -1.
Result<std::int64_t> check_max_tokens(std::int64_t max_tokens);
// Errors: invalid_argument for an id outside the vocabulary or more than kMaxStopIds.
Result<std::vector<std::int32_t>> check_stop_ids(const std::vector<std::int32_t>& ids, int vocabulary);

// The tokens whose text holds one of the strings; a string that no token holds is stood for by the last token of its
// own encoding. Looks at the whole vocabulary. Errors: invalid_argument (an empty string), limit_exceeded
// (kMaxDryBreakers).
Result<std::vector<std::int32_t>> find_breakers(const text::Tokenizer& tokenizer,
                                                const std::vector<std::string>& texts);

}  // namespace adze::engine
