// The table of docs/accuracy.md: what the accuracy tests of one run measured.
#pragma once

#include <string_view>

#include "golden/oracle.hpp"

namespace adze::test {

enum class Path { float32, automatic };

// rel_rms of a prompt's last logits against the oracle. Printed as a Markdown table at the end of the run, and written
// to the file that ADZE_ACCURACY_TABLE names, if it names one.
void record_accuracy(const OracleRow& row, Path path, std::string_view prompt, double rel_rms);

}  // namespace adze::test
