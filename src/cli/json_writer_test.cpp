#include "cli/json_writer.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace adze::cli {
namespace {

TEST(JsonWriter, NestsAndSeparates) {
  JsonWriter json;
  json.begin_object().field("a", 1).list("b", std::vector<int>{1, 2}).key("c").begin_object().end_object();
  json.field("d", true).field("e", "x").key("f").null().end_object();
  EXPECT_EQ(json.take(), "{\"a\":1,\"b\":[1,2],\"c\":{},\"d\":true,\"e\":\"x\",\"f\":null}\n");
}

TEST(JsonWriter, EscapesText) {
  JsonWriter json;
  json.value(std::string_view("\"\\\n\t\0é\xff", 8));
  EXPECT_EQ(json.take(), "\"\\\"\\\\\\n\\u0009\\u0000é\\ufffd\"\n");
}

TEST(JsonWriter, NumbersThatAreNotFiniteAreNull) {
  JsonWriter json;
  json.begin_array().value(0.1).value(std::numeric_limits<double>::quiet_NaN()).end_array();
  EXPECT_EQ(json.take(), "[0.1,null]\n");
}

}  // namespace
}  // namespace adze::cli
