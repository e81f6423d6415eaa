// Text of a byte tokenizer, where every character and stop string may be cut between tokens.
#include "worker/decode/text_stream.h"

#include <gtest/gtest.h>

#include "common/base/check.h"

namespace mt::decode {
namespace {

const data::Tokenizer& Bytes() {
  static const auto tokenizer = [] {
    auto made = data::MakeTokenizer({.type = "byte"});
    CHECK(made.ok());
    return *std::move(made);
  }();
  return *tokenizer;
}

std::vector<int32_t> IdsOf(std::string_view text) {
  std::vector<int32_t> ids;
  CHECK(Bytes().Encode(text, &ids).ok());
  return ids;
}

// The pieces as they come, joined by '|', until the stream has stopped; the last by Finish.
std::string Pieces(const std::string& text, const std::vector<std::string>& stops,
                   const std::string& prompt = "x") {
  TextStream stream(&Bytes(), IdsOf(prompt), stops);
  std::string out;
  for (const int32_t id : IdsOf(text)) {
    const auto piece = stream.Add(id);
    CHECK(piece.ok());
    if (!piece->empty()) out += *piece + "|";
    if (stream.stopped()) break;
  }
  out += stream.Finish();
  return out + (stream.stopped() ? "." : "");
}

TEST(TextStreamTest, CharactersComeWhole) {
  EXPECT_EQ(Pieces("aé€😀b", {}), "a|é|€|😀|b|");
  EXPECT_EQ(Pieces("a\xE2\x82", {}), "a|\xE2\x82");    // the rest, unfinished
  EXPECT_EQ(Pieces("\xFF\x80z", {}), "\xFF|\x80|z|");  // none of them begins a character
  EXPECT_EQ(Pieces("\xE2z", {}), "\xE2z|");            // was none
}

TEST(TextStreamTest, UnfinishedBytes) {
  EXPECT_EQ(UnfinishedBytes("abc"), 0U);
  EXPECT_EQ(UnfinishedBytes("a\xC3"), 1U);
  EXPECT_EQ(UnfinishedBytes("a\xE2\x82"), 2U);
  EXPECT_EQ(UnfinishedBytes("a\xF0\x9F\x98"), 3U);
  EXPECT_EQ(UnfinishedBytes("a\xF0\x9F\x98\x80"), 0U);
  EXPECT_EQ(UnfinishedBytes("\x80\x80\x80\x80"), 0U);
  EXPECT_EQ(UnfinishedBytes("\xC0"), 0U);
  EXPECT_EQ(UnfinishedBytes("\xF8\x80"), 0U);
}

TEST(TextStreamTest, StopsAcrossTokens) {
  EXPECT_EQ(Pieces("one END two", {"END"}), "o|n|e| |.");
  EXPECT_EQ(Pieces("E EN ENX", {"END"}), "E |EN |ENX|");
  EXPECT_EQ(Pieces("EN", {"END"}), "EN");  // the end came before the stop string did
  EXPECT_EQ(Pieces("aabab", {"ab"}), "a|.");
  EXPECT_EQ(Pieces("xyz!", {"z!", "y"}), "x|.");
  EXPECT_EQ(Pieces("mississippi", {"ssip"}), "m|i|ssi|.");
  EXPECT_EQ(Pieces("a€", {"€"}), "a|.");
  EXPECT_EQ(Pieces("b", {"b"}), ".");
}

TEST(TextStreamTest, AStopStringOfThePromptStopsNothing) {
  EXPECT_EQ(Pieces("Dab", {"END"}, "EN"), "D|a|b|");
}

TEST(TextStreamTest, APromptMayEndWithinACharacter) {
  EXPECT_EQ(Pieces("\x82\xACz", {}, "a\xE2"), "\x82|\xAC|z|");
}

TEST(TextStreamTest, TheNullTokenizersNumbersAreApart) {
  const auto numbers = data::MakeTokenizer({.type = "null", .vocab_size = 1000});
  ASSERT_TRUE(numbers.ok());
  TextStream stream(numbers->get(), {5, 6}, {});
  EXPECT_EQ(*stream.Add(17), " 17");
  EXPECT_EQ(*stream.Add(3), " 3");
  EXPECT_EQ(stream.text(), " 17 3");
  EXPECT_EQ(std::vector<int32_t>(stream.ids().begin(), stream.ids().end()),
            (std::vector<int32_t>{17, 3}));
}

// As SentencePiece with bytes for what its pieces lack: each byte of a character is replaced until
// the last one is there.
class BytePieces final : public data::Tokenizer {
 public:
  std::string_view name() const override { return "pieces"; }
  int64_t vocab_size() const override { return 256; }
  int32_t eod() const override { return data::kNoEod; }
  Status Encode(std::string_view, std::vector<int32_t>*) const override { return OkStatus(); }
  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text.push_back(static_cast<char>(id));
    const size_t open = UnfinishedBytes(text);
    text.resize(text.size() - open);
    for (size_t i = 0; i < open; ++i) text += "\xEF\xBF\xBD";
    return text;
  }
};

TEST(TextStreamTest, BytesThatTheTokenizerReplacesAreAwaited) {
  const BytePieces pieces;
  TextStream stream(&pieces, {'x'}, {});
  std::string said;
  for (const char c : std::string("a\xF0\x9F\x98\x80z\xC3\xA9."))
    said += *stream.Add(static_cast<unsigned char>(c)) + "|";
  EXPECT_EQ(said + stream.Finish(), "a||||\xF0\x9F\x98\x80|z||\xC3\xA9|.|");
  TextStream cut(&pieces, {'x'}, {});
  EXPECT_EQ(*cut.Add(0xC3), "");
  EXPECT_EQ(cut.Finish(), "\xEF\xBF\xBD");
}

TEST(TextStreamTest, ATokenWithoutTextIsAnError) {
  TextStream stream(&Bytes(), IdsOf("a"), {});
  EXPECT_TRUE(absl::IsInvalidArgument(stream.Add(300).status()));
}

}  // namespace
}  // namespace mt::decode
