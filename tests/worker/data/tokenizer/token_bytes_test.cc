// The bytes that tokens stand for: of a text they add up to its size, whatever the tokenizer, and a
// record beside data tells them.
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/temp_data.h"
#include "tests/worker/data/tokenizer/golden_files.h"
#include "worker/data/tokenizer.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The bytes that the ids of the text stand for.
int64_t BytesIn(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> bytes = tokenizer.token_bytes();
  EXPECT_EQ(std::ssize(bytes), tokenizer.vocab_size());
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.Encode(text, &ids).ok());
  return std::accumulate(ids.begin(), ids.end(), int64_t{0}, [&](int64_t sum, int32_t id) {
    return sum + bytes[static_cast<size_t>(id)];
  });
}

TEST(TokenBytesTest, AddUpToTheText) {
  const std::string text = "It costs 12 \xE2\x82\xAC, \xE4\xB8\xAD\xE6\x96\x87 too.\n\n  End";
  const std::string any = text + "\xFF\xFE broken \xE4\xB8";
  for (const TokenizerConfig& config :
       {TokenizerConfig{.type = "byte"},
        TokenizerConfig{.type = "gpt2_bpe",
        .vocab = GoldenPath("gpt2_vocab.json"),
        .merges = GoldenPath("gpt2_merges.txt")},
        TokenizerConfig{.type = "hf", .file = GoldenPath("llama3.json")}}) {
    const auto tokenizer = MakeTokenizer(config);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(BytesIn(**tokenizer, any), std::ssize(any)) << config.type;
    // The end of a document is a token without a text.
    ASSERT_GE((*tokenizer)->eod(), 0);
    EXPECT_EQ((*tokenizer)->token_bytes()[static_cast<size_t>((*tokenizer)->eod())], 0);
  }
  // Of characters: a byte that is none has a token of its own, and one blank is put before a text.
  const auto llama2 = MakeTokenizer({.type = "hf", .file = GoldenPath("llama2.json")});
  ASSERT_TRUE(llama2.ok()) << llama2.status();
  EXPECT_EQ(BytesIn(**llama2, text), std::ssize(text) + 1);
  // Ids say nothing of bytes.
  EXPECT_THAT((*MakeTokenizer({.type = "null", .vocab_size = 9}))->token_bytes(), ElementsAre());
}

TEST(TokenBytesTest, ARecordTellsThem) {
  const TempDir dir;
  const TokenizerRecord record = {.type = "hf",
                                  .digest = std::string(32, 'a'),
                                  .vocab_size = 7,
                                  .eod = 6,
                                  .token_bytes = {1, 1, 1, 12, 3, 3, 0}};
  EXPECT_THAT(ToJson(record), HasSubstr("\"token_bytes\": \"3*1 12 2*3 0\""));
  EXPECT_EQ(ParseTokenizerRecord(ToJson(record))->token_bytes, record.token_bytes);
  // One of an earlier version tells none; bytes need no list.
  TokenizerRecord earlier = record;
  earlier.token_bytes.clear();
  EXPECT_THAT(ToJson(earlier), ::testing::Not(HasSubstr("token_bytes")));
  EXPECT_THAT(ParseTokenizerRecord(ToJson(earlier))->token_bytes, ElementsAre());
  EXPECT_EQ(earlier, record) << "the same tokenizer";
  const auto bytes =
      ParseTokenizerRecord(R"({"version": 1, "type": "byte", "digest": "", "vocab_size": 257})");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->token_bytes, (*MakeTokenizer({.type = "byte"}))->token_bytes());
}

TEST(TokenBytesTest, ADamagedListIsNamed) {
  for (const char* list :
       {R"("3*1 12 2*3")", R"("3*1 12 2*3 0 5")", R"("8*1")", R"("x")", R"("-1*7")", R"("7*-1")",
        R"("3*1  12 2*3 0")", R"("7*16777216")", R"("")", R"("9223372036854775808*1")", "[1, 2]"}) {
    const std::string text = fmt::format(
        R"({{"version": 1, "type": "hf", "digest": "", "vocab_size": 7, "eod": 6, "token_bytes": {}}})",
        list);
    const auto record = ParseTokenizerRecord(text);
    EXPECT_TRUE(absl::IsDataLoss(record.status())) << list;
    EXPECT_THAT(base::Message(record.status()), HasSubstr("token_bytes")) << list;
  }
}

// A record of an earlier version, with the same digest: then the files tell what it does not.
TEST(TokenBytesTest, TheFilesTellWhatARecordDoesNot) {
  const TokenizerConfig config = {.type = "hf", .file = GoldenPath("llama3.json")};
  const auto record = RecordOf(config, nullptr);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(std::ssize(record->token_bytes), record->vocab_size);
  TokenizerRecord earlier = *record;
  earlier.token_bytes.clear();
  EXPECT_EQ(RecordOf(config, &earlier)->token_bytes, record->token_bytes);
}

}  // namespace
}  // namespace mt::data
