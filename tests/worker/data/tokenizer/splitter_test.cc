// The splitters written by hand against PCRE2 with the same patterns, and the tables that they use.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "worker/data/tokenizer/splitter.h"

#include <array>
#include <cstdlib>
#include <pcre2.h>

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

TEST(SplitterTest, TablesAreThoseOfPcre2) {
  std::array<char, 64> version{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version.data());
  if (kUnicodeVersion != version.data()) {
    ASSERT_EQ(std::getenv("MT_REQUIRE_ROOT"), nullptr) << "PCRE2 is of Unicode " << version.data();
    GTEST_SKIP() << "PCRE2 here is of Unicode " << version.data();
  }
  std::string all;
  for (uint32_t code = 0; code < kCodePoints; ++code) {
    if (code < 0xD800 || code >= 0xE000) AppendUtf8(code, &all);
  }
  for (const auto& [pattern, wanted] : {std::pair(R"(\p{L})", CharClass::kLetter),
                                        {R"(\p{N})", CharClass::kNumber},
                                        {R"(\s)", CharClass::kSpace}}) {
    std::vector<bool> matched(kCodePoints);
    const auto regex = RegexSplitter::Create(std::string(pattern) + "+");
    ASSERT_TRUE(regex.ok());
    const auto one = RegexSplitter::Create(std::string("^") + pattern);
    int64_t differ = 0;
    ASSERT_TRUE(regex
                    ->Split(all,
                            [&](std::string_view run) {
                              // A run is all of the class or none of it: matches and what lies
                              // between take turns.
                              const bool is = CharClasses()[DecodeUtf8(run.data()).code] == wanted;
                              for (size_t at = 0; at < run.size();) {
                                const CodePoint point = DecodeUtf8(run.data() + at);
                                at += point.bytes;
                                if ((CharClasses()[point.code] == wanted) != is &&
                                    point.code != 0x180E)
                                  ++differ;
                              }
                              return OkStatus();
                            })
                    .ok());
    EXPECT_EQ(differ, 0) << pattern;
  }
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
  EXPECT_THAT(Pieces("z*", "abc"), ElementsAre("abc"));
  EXPECT_THAT(Pieces(*Splitter::Create({}), "all of it"), ElementsAre("all of it"));
}

TEST(SplitterTest, APatternThatIsNoneIsRefused) {
  const auto splitter = Splitter::Create({"a(b"});
  EXPECT_TRUE(absl::IsInvalidArgument(splitter.status())) << splitter.status();
  EXPECT_THAT(base::Message(splitter.status()), ::testing::HasSubstr("offset 3"));
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
