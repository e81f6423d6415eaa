// Training against the algorithm written plainly, and what it does not depend on.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/paths.h"
#include "worker/data/tokenizer/bpe_trainer.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/hf_file.h"
#include "worker/data/tokenizer/splitter.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text() {
  return base::ReadFile(MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/text.txt").value();
}

StatusOr<BpeParts> Train(const TrainTokenizerArgs& args, std::string_view text) {
  return TrainTokenizer(args, std::span(&text, 1));
}

// Counts every pair anew for each merge.
std::vector<BpeMerge> TrainedPlainly(std::string_view text, size_t merges) {
  std::vector<std::vector<int32_t>> words;
  (void)Splitter::Create({std::string(kGpt2Pattern)})->Split(text, [&](std::string_view piece) {
    auto& word = words.emplace_back();
    for (const char byte : piece) word.push_back(static_cast<unsigned char>(byte));
    return OkStatus();
  });
  std::vector<BpeMerge> made;
  while (made.size() < merges) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      if (it->second > best->second) best = it;
    }
    const BpeMerge merge = {best->first.first, best->first.second,
                            static_cast<int32_t>(256 + made.size())};
    for (auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != merge.left || word[i + 1] != merge.right) continue;
        word[i] = merge.result;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    made.push_back(merge);
  }
  return made;
}

TEST(TrainerTest, MergesAreThoseOfThePlainAlgorithm) {
  std::string text = Text();
  // Overlapping pairs of one byte, and words with several of a pair.
  text += " aaaa aaaaa banana bananana aaaa aaaaa banana bananana aaaa";
  const auto parts = Train({.vocab_size = 356, .pattern = std::string(kGpt2Pattern)}, text);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const std::vector<BpeMerge> plain = TrainedPlainly(text, 100);
  ASSERT_EQ(parts->tables.merges.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(parts->tables.merges[i].left, plain[i].left) << i;
    EXPECT_EQ(parts->tables.merges[i].right, plain[i].right) << i;
  }
}

TEST(TrainerTest, ThreadsDoNotMatter) {
  std::string text;
  while (text.size() < (size_t{9} << 20)) text += Text();
  TrainTokenizerArgs args = {.vocab_size = 400, .pattern = std::string(kLlama3Pattern)};
  const auto one = Train(args, text);
  args.threads = 3;
  const auto three = Train(args, text);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(HfFileText(*one), HfFileText(*three));
}

TEST(TrainerTest, SpecialsTakeTheLastIds) {
  const auto parts = Train({.vocab_size = 300,
                            .pattern = std::string(kGpt2Pattern),
                            .specials = {"<|endoftext|>", "<|pad|>"}},
                           Text());
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto tokenizer = MakeBpeTokenizer(*ParseHfFile(HfFileText(*parts)));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 300);
  EXPECT_EQ((*tokenizer)->eod(), 298);
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("<|pad|>", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(299));
}

TEST(TrainerTest, EndsWhereNoPairIsLeft) {
  const auto parts =
      Train({.vocab_size = 1000, .pattern = std::string(kGpt2Pattern)}, "abab ab xy");
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->tables.tokens.size(), 257U);
  EXPECT_EQ(parts->tables.tokens.back(), "ab");
}

TEST(TrainerTest, BadArgumentsAreRefused) {
  TrainTokenizerArgs args = {.vocab_size = 256, .pattern = "a(b", .specials = {"x"}};
  EXPECT_THAT(base::Message(Train(args, "ab").status()), HasSubstr("expected 257"));
  args.vocab_size = 300;
  EXPECT_THAT(base::Message(Train(args, "ab").status()), HasSubstr("PCRE2"));
  args.pattern = ".";
  EXPECT_THAT(base::Message(Train(args, "").status()), HasSubstr("empty"));
  args.specials = {"x", "x"};
  EXPECT_THAT(base::Message(Train(args, "ab").status()), HasSubstr("twice"));
  args.specials = {"\xFF"};
  EXPECT_THAT(base::Message(Train(args, "ab").status()), HasSubstr("not UTF-8"));
  args.specials = {""};
  EXPECT_THAT(base::Message(Train(args, "ab").status()), HasSubstr("without text"));
  args = {.vocab_size = 300, .pattern = ".", .progress = [](int64_t) { return false; }};
  EXPECT_TRUE(absl::IsCancelled(Train(args, "abab").status()));
}

}  // namespace
}  // namespace mt::data
