// The splitters written by hand against PCRE2 with the same patterns, and the tables that they use.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "worker/data/tokenizer/splitter.h"

#include <array>
#include <cstdlib>
#include <functional>
#include <pcre2.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/tokenizer/random_text.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Pieces(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  const Status status = splitter.Split(text, [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

std::vector<std::string> Pieces(std::string_view pattern, std::string_view text) {
  return Pieces(*Splitter::Create({std::string(pattern)}), text);
}

TEST(SplitterTest, OwnSplittersGiveThePiecesOfTheirPatterns) {
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    ASSERT_NE(FindFastSplitter(pattern), nullptr);
    const auto own = Splitter::Create({std::string(pattern)});
    const auto pcre2 = Splitter::CreateWithoutFast({std::string(pattern)});
    ASSERT_TRUE(own.ok() && pcre2.ok()) << pcre2.status();
    RandomText random(7);
    for (int i = 0; i < 4000 && !HasFailure(); ++i) {
      const std::string text = random.Make(1 + static_cast<size_t>(i) % 40, /*invalid=*/false);
      EXPECT_EQ(Pieces(*own, text), Pieces(*pcre2, text)) << pattern << "\n" << text;
    }
  }
}

// Every code point but surrogates, in order.
std::string AllCodePoints() {
  std::string all;
  for (uint32_t code = 0; code < kCodePoints; ++code) {
    if (code < 0xD800 || code >= 0xE000) AppendUtf8(code, &all);
  }
  return all;
}

// Stand-ins serve tables of Unicode 14 to 16.
bool Pcre2IsNewer() {
  std::array<char, 64> version{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version.data());
  return std::atoi(version.data()) > 16;
}

// Gives each code point of `all` to `see` (code, whether it is of the class). Matches of whole runs
// and what lies between them take turns.
void ForEachCode(std::string_view of_class, std::string_view all,
                 const std::function<void(uint32_t, bool)>& see) {
  const auto regex = RegexSplitter::Create(fmt::format("{}+", of_class));
  ASSERT_TRUE(regex.ok()) << regex.status();
  bool is = of_class == R"(\p{Cc})";  // U+0000 is the first
  const Status status = regex->Split(all, [&](std::string_view run) {
    for (size_t at = 0; at < run.size();) {
      const CodePoint point = DecodeUtf8(run.data() + at);
      at += point.bytes;
      see(point.code, is);
    }
    is = !is;
    return OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
}

TEST(SplitterTest, PatternsKnowTheClassesOfOwnSplitters) {
  if (Pcre2IsNewer()) {
    ASSERT_EQ(std::getenv("MT_REQUIRE_ROOT"), nullptr) << "PCRE2 is of a later Unicode than 16";
    GTEST_SKIP() << "PCRE2 here is of a later Unicode than 16";
  }
  const std::string all = AllCodePoints();
  for (const auto& [pattern, wanted] : {std::pair(R"(\p{L})", CharClass::kLetter),
                                        {R"(\p{N})", CharClass::kNumber},
                                        {R"(\s)", CharClass::kSpace}}) {
    std::vector<uint32_t> differ;
    ForEachCode(pattern, all, [&](uint32_t code, bool is) {
      if ((CharClasses()[code] == wanted) != is) differ.push_back(code);
    });
    EXPECT_THAT(differ, ElementsAre()) << pattern;
  }
}

// Counts of DerivedGeneralCategory.txt 16.0.0, which are those of PyPI's tokenizers 0.23.3 too.
TEST(SplitterTest, PatternsKnowTheCategoriesOfUnicode16) {
  if (Pcre2IsNewer()) {
    ASSERT_EQ(std::getenv("MT_REQUIRE_ROOT"), nullptr) << "PCRE2 is of a later Unicode than 16";
    GTEST_SKIP() << "PCRE2 here is of a later Unicode than 16";
  }
  const std::string all = AllCodePoints();
  for (const auto& [category, wanted] :
       {std::pair("Cc", 65), {"Cf", 170},    {"Cn", 819533}, {"Co", 137468}, {"Ll", 2258},
        {"Lm", 404},         {"Lo", 136477}, {"Lt", 31},     {"Lu", 1858},   {"Mc", 468},
        {"Me", 13},          {"Mn", 2020},   {"Nd", 760},    {"Nl", 236},    {"No", 915},
        {"Pc", 10},          {"Pd", 27},     {"Pe", 77},     {"Pf", 10},     {"Pi", 12},
        {"Po", 640},         {"Ps", 79},     {"Sc", 63},     {"Sk", 125},    {"Sm", 950},
        {"So", 7376},        {"Zl", 1},      {"Zp", 1},      {"Zs", 17}}) {
    int count = 0;
    ForEachCode(fmt::format(R"(\p{{{}}})", category), all,
                [&](uint32_t /*code*/, bool is) { count += is ? 1 : 0; });
    EXPECT_EQ(count, wanted) << category;
  }
}

// U+1C89 and U+1C8A are a capital and a small letter of Unicode 16, U+1CCF0 is a digit of it;
// U+31350 is Han of 15 and U+2EBF0 of 15.1.
TEST(SplitterTest, NewerCodePointsAreCutAsKnownOnesAndStayWhatTheyAre) {
  EXPECT_THAT(
      Pieces(R"(\p{Lu}\p{Ll}|\p{Han}+|\p{Nd})",
             "x\u1C89\u1C8A\U00031350\U0002EBF0!\U0001CCF0\U0001CCF1"),
      ElementsAre("x", "\u1C89\u1C8A", "\U00031350\U0002EBF0", "!", "\U0001CCF0", "\U0001CCF1"));
  EXPECT_THAT(Pieces(R"(\s)", "a\u180Eb\u3000c"), ElementsAre("a\u180Eb", "\u3000", "c"));
  const std::string text = "a\u1C89\U00031350 \U0001CCF0";
  EXPECT_THAT(Pieces(kGpt2Pattern, text), ElementsAre("a\u1C89\U00031350", " \U0001CCF0"));
  EXPECT_THAT(Pieces(kLlama3Pattern, text), ElementsAre("a\u1C89\U00031350", " ", "\U0001CCF0"));
}

TEST(SplitterTest, WhiteSpaceGoesToTheNextWord) {
  EXPECT_THAT(Pieces(kGpt2Pattern, "a  b\n\n c  "),
              ElementsAre("a", " ", " b", "\n\n", " c", "  "));
  EXPECT_THAT(Pieces(kLlama3Pattern, "a.\n\n  b\t\n x  "),
              ElementsAre("a", ".\n\n", " ", " b", "\t\n", " x", "  "));
  EXPECT_THAT(Pieces(kGpt2Pattern, "I'll DON'T 1234"),
              ElementsAre("I", "'ll", " DON", "'", "T", " 1234"));
  EXPECT_THAT(Pieces(kLlama3Pattern, "I'LL 12345"), ElementsAre("I", "'LL", " ", "123", "45"));
  EXPECT_THAT(Pieces(kQwen2Pattern, "x12"), ElementsAre("x", "1", "2"));
}

TEST(SplitterTest, PatternsFollowOneAnotherAndLoseNothing) {
  const auto splitter = Splitter::Create({R"(\p{N})", std::string(kGpt2Pattern)});
  ASSERT_TRUE(splitter.ok());
  EXPECT_THAT(Pieces(*splitter, "a12 b"), ElementsAre("a", "1", "2", " b"));
  EXPECT_THAT(Pieces("b+", "abbc"), ElementsAre("a", "bb", "c"));
  EXPECT_THAT(Pieces(*Splitter::Create({}), "all of it"), ElementsAre("all of it"));
}

TEST(SplitterTest, APatternThatIsNoneIsRefused) {
  const auto splitter = Splitter::Create({"a(b"});
  EXPECT_TRUE(absl::IsInvalidArgument(splitter.status())) << splitter.status();
  EXPECT_THAT(base::Message(splitter.status()), ::testing::HasSubstr("offset 3"));
}

// Each gives other pieces in tokenizers 0.23.3 than PCRE2 makes of it.
TEST(SplitterTest, WhatMeansAnotherToTheTokenizersLibraryIsRefused) {
  const auto fault = [](const char* pattern) {
    return base::Message(Splitter::Create({pattern}).status());
  };
  for (const char* pattern : {R"([\p{L}&&[^\p{Han}]])", "[a[b]]", "x[^]&&a]", "[[:alpha:]]+"})
    EXPECT_THAT(fault(pattern), ::testing::HasSubstr("class within a class")) << pattern;
  for (const char* pattern :
       {R"(a\w+)", R"([a\W])", R"(a\b)", R"(a\B)", R"(\h)", R"([\H])", R"(\v)", R"(\V)",
        R"(a\Q[\E)", "^a", "a|a$", R"(\p{N}{1,3}+)", "a{2}?b", "a{,2}b", "(?m:a.)", "(?i-s)a"}) {
    EXPECT_THAT(fault(pattern), ::testing::HasSubstr("means something else")) << pattern;
  }
  for (const char* pattern : {"z*", "(?=[A-Z])", "a|", R"(\K)", "(?:a?)+"})
    EXPECT_THAT(fault(pattern), ::testing::HasSubstr("may match an empty text")) << pattern;
  EXPECT_THAT(fault(R"(a\w)"), ::testing::HasSubstr(R"('\w' at offset 1)"));
  for (const char* pattern :
       {R"([\[&]&&)", "[]a]", R"(\[[a]\[b])", R"([\^$^{1}+]\^\$)", R"(\p{L}+\x{41}+\\w)",
        "a{2}b{2,}c{2,3}?", "(?i:a)(?<!b)(?>c)(?x-i)d", R"(\Aa\s++\z)"}) {
    EXPECT_EQ(fault(pattern), "") << pattern;
  }
}

TEST(UnicodeTest, RunsOfValidAndOfInvalidBytes) {
  EXPECT_EQ(ValidUtf8Prefix("plain \xC3\xA9 \xE4\xB8\xAD \xF4\x8F\xBF\xBF"), 17U);
  for (const std::string_view bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5", "\xC3", "\xE4\xB8"}) {
    EXPECT_EQ(ValidUtf8Prefix("ab" + std::string(bad)), 2U);
    EXPECT_EQ(InvalidUtf8Prefix(std::string(bad) + "ab"), bad.size());
  }
}

}  // namespace
}  // namespace mt::data
