#include "text/unicode.hpp"

#include <gtest/gtest.h>

#include <string>

namespace adze::text {
namespace {

std::string repaired(std::string_view bytes) {
  std::string out;
  append_valid_utf8(bytes, out);
  return out;
}

TEST(Unicode, CategoriesAreThoseOfVersion16) {
  EXPECT_EQ(category('A'), Category::Lu);
  EXPECT_EQ(category(0x4E00), Category::Lo);
  EXPECT_EQ(category(0x0301), Category::Mn);
  EXPECT_EQ(category(0x1F600), Category::So);
  EXPECT_EQ(category(0xE000), Category::Co);
  EXPECT_EQ(category(0x10D4A), Category::Lo);  // Garay, new in 16.0
  EXPECT_EQ(category(0x10FFFF), Category::Cn);
  EXPECT_EQ(category(0x110000), Category::Cn);
}

TEST(Unicode, WhiteSpaceIsTheProperty) {
  for (const char32_t c : {0x09, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x3000}) EXPECT_TRUE(is_white_space(c));
  for (const char32_t c : {0x08, 0x1F, 0x180E, 0x200B, 0xFEFF}) EXPECT_FALSE(is_white_space(c));
}

TEST(Unicode, EachMaximalInvalidPartBecomesOneReplacement) {
  const std::string r(kReplacementUtf8);
  EXPECT_EQ(repaired("a\x80z"), "a" + r + "z");
  EXPECT_EQ(repaired("\xC0\xAF"), r + r);
  EXPECT_EQ(repaired("\xE2\x82"), r);
  EXPECT_EQ(repaired("\xE2\x82z"), r + "z");
  EXPECT_EQ(repaired("\xED\xA0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(repaired("\xF0\x9F\x92\xF0\x9F\x98\x80"), r + "\xF0\x9F\x98\x80");
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(repaired("plain ascii, longer than eight"), "plain ascii, longer than eight");
}

TEST(Unicode, EveryCodePointSurvivesEncodingAndDecoding) {
  std::string text;
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    text.clear();
    append_utf8(c, text);
    ASSERT_TRUE(is_valid_utf8(text)) << std::hex << static_cast<std::uint32_t>(c);
    const CodePoint back = code_point_at(text, 0);
    ASSERT_TRUE(back.value == c);
    ASSERT_EQ(back.bytes, text.size());
  }
}

TEST(Unicode, NormalFormC) {
  EXPECT_EQ(to_nfc("plain"), "plain");
  EXPECT_EQ(to_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc("\u00E9"), "\u00E9");
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");                        // reordered
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB\u1100\u116E\u11A8"), "\uD55C\uAD6D");  // Hangul
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");                                // excluded from composition
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");                                      // a singleton
  EXPECT_EQ(to_nfc("a\u0315\u0300\u05AE\u0300b"), "\u00E0\u05AE\u0300\u0315b");
}

}  // namespace
}  // namespace adze::text
