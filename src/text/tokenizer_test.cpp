#include "text/tokenizer.hpp"

#include <gtest/gtest.h>

namespace adze::text {
namespace {
TEST(Tokenizer, Nothing) {}
}  // namespace
}  // namespace adze::text
