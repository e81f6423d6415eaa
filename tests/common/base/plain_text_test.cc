// What a terminal would obey is written out, and names that could be taken for something else are
// refused.
#include "common/base/plain_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace mt::base {
namespace {

TEST(PlainTextTest, ReadableTextStays) {
  for (const char* text : {"", "plain", "two\nlines\tand a tab", "caf\xC3\xA9 \xE2\x9C\x93",
                           "\xF0\x9F\x98\x80", "\\x1b is written already"}) {
    EXPECT_EQ(CleanText(text), text);
  }
  EXPECT_EQ(CleanLine("two\nlines\tand a tab"), "two lines and a tab");
}

TEST(PlainTextTest, WhatATerminalObeysIsWrittenOut) {
  EXPECT_EQ(CleanText("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(CleanText("over\rwritten\b\x7f"), "over\\x0dwritten\\x08\\x7f");
  EXPECT_EQ(CleanText(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(CleanText("\xC2\x9B"
                      "31m"),
            "\\u009b31m");  // CSI in one character
  EXPECT_EQ(CleanText("a\xE2\x80\xAE"
                      "b"),
            "a\\u202eb");  // right to left
  EXPECT_EQ(CleanText("a\xE2\x80\x8B"
                      "b\xEF\xBB\xBF"),
            "a\\u200bb\\ufeff");  // invisible
  const std::string once = CleanText("\x1b[1m\xC2\x9B\xFF");
  EXPECT_EQ(CleanText(once), once);
}

TEST(PlainTextTest, TextOfPeoplesOwnHasAllButControlCharacters) {
  for (const char* text : {"", "two\nlines\tand a tab", "\xE2\x80\x8C\xE2\x80\x8D joiners",
                           "\xE2\x80\x8E\xE2\x80\x8F marks", "\xEF\xBB\xBF of bytes",
                           "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB"}) {
    EXPECT_EQ(ControlIn(text), "") << CleanText(text);
  }
  EXPECT_EQ(ControlIn("a\r\n"), "the control character U+000D");
  EXPECT_EQ(ControlIn("\x1b[2J"), "the control character U+001B");
  EXPECT_EQ(ControlIn(std::string_view("a\0b", 3)), "the control character U+0000");
  EXPECT_EQ(ControlIn("\x7f"), "the control character U+007F");
  EXPECT_EQ(ControlIn("\xC2\x9B"), "the control character U+009B");
  EXPECT_EQ(ControlIn("ok \xED\xA0\x80"), "the byte 0xed, which is no UTF-8");
  EXPECT_EQ(ControlIn("\xE2\x80"), "the byte 0xe2, which is no UTF-8") << "cut off";
}

TEST(PlainTextTest, WhatIsNoUtf8IsWrittenOutByteByByte) {
  EXPECT_EQ(CleanText("\xFF\x9B"), "\\xff\\x9b");
  EXPECT_EQ(CleanText("\xC0\x9B"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(CleanText("\xE0\x82\x9B"), "\\xe0\\x82\\x9b");  // overlong
  EXPECT_EQ(CleanText("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
  EXPECT_EQ(CleanText("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(CleanText("\xE2\x80"), "\\xe2\\x80");  // cut off
}

TEST(PlainTextTest, AJsonStringReadsBackAsTheText) {
  for (int c = 0; c < 256; ++c) {
    const std::string text{'a', static_cast<char>(c), 'z'};
    const std::string json = JsonQuoted(text);
    if (c >= 0x80) {
      EXPECT_EQ(json, '"' + text + '"');
      continue;
    }
    EXPECT_EQ(nlohmann::json::parse(json), text) << c;
  }
  EXPECT_EQ(JsonQuoted(R"(a "b" \c)"), R"("a \"b\" \\c")");
  EXPECT_EQ(JsonQuoted("\n\x1b"), R"("\u000a\u001b")");
  EXPECT_EQ(JsonQuoted(""), R"("")");
}

TEST(PlainTextTest, NamesThatMeanSomethingElseAreRefused) {
  for (const char* name : {"a", "node-1.rack_2", ".hidden", "a-", "caf\xC3\xA9", "..."}) {
    EXPECT_TRUE(CheckName("a name", name, 8 * 32).ok()) << name;
  }
  for (const char* name : {"", "-x", "-", ".", "..", "a b", "a/b", "a\nb", "a\tb", "\x1b[1m",
                           "\xFF", "a\xE2\x80\xAE"}) {
    EXPECT_FALSE(CheckName("a name", name, 256).ok()) << name;
  }
  EXPECT_TRUE(CheckName("a name", "four", 4).ok());
  EXPECT_FALSE(CheckName("a name", "fives", 4).ok());
  EXPECT_EQ(
      Message(CheckName("a node's name", "-\x1b", 4)),
      "a node's name has 1 to 4 bytes of readable text without '/' and blanks, does not begin "
      "with '-', and is neither . nor ..; not '-\\x1b'");
}

TEST(PlainTextTest, LabelsAreReadableAndHaveAName) {
  EXPECT_TRUE(CheckLabel("x", "team/nlp", "").ok());
  EXPECT_TRUE(CheckLabel("x", "we: ird", "a b").ok());
  for (const char* name : {"", "-x", ".", "..", "a\x1b"}) {
    EXPECT_FALSE(CheckLabel("x", name, "v").ok()) << name;
  }
  EXPECT_FALSE(CheckLabel("x", "a", "v\x1b[1m").ok());
}

}  // namespace
}  // namespace mt::base
