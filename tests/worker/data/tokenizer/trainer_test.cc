// Training against the algorithm written plainly and the file of the tokenizers library, and what
// it does not depend on.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/tokenizer/golden_files.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/hf_file.h"
#include "worker/data/tokenizer/splitter.h"
#include "worker/data/tokenizer/training/bpe_trainer.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text() { return Golden("text.txt"); }

StatusOr<BpeParts> Train(const TrainTokenizerArgs& args, std::string_view text) {
  const TrainingText one = {.name = "file.txt", .text = text};
  return TrainTokenizer(args, std::span(&one, 1));
}

// How often each piece occurs in the text as a whole, of valid UTF-8.
std::map<std::string_view, int64_t> CountedPlainly(const std::string& pattern,
                                                   std::string_view text) {
  std::map<std::string_view, int64_t> counts;
  (void)Splitter::Create({pattern})->Split(text, [&](std::string_view piece) {
    ++counts[piece];
    return OkStatus();
  });
  return counts;
}

// Counts every pair anew for each merge; the first 256 of `tokens` are the bytes.
std::vector<BpeMerge> TrainedPlainly(std::string_view text, size_t merges,
                                     const std::vector<std::string>& tokens) {
  std::map<char, int32_t> ids;
  for (int32_t id = 0; id < 256; ++id) ids[tokens[static_cast<size_t>(id)][0]] = id;
  std::vector<std::vector<int32_t>> words;
  (void)Splitter::Create({std::string(kGpt2Pattern)})->Split(text, [&](std::string_view piece) {
    auto& word = words.emplace_back();
    for (const char byte : piece) word.push_back(ids[byte]);
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

void ExpectThePlainMerges(std::string_view text, size_t merges) {
  const auto parts = Train({.vocab_size = 256 + static_cast<int64_t>(merges),
                            .pattern = std::string(kGpt2Pattern),
                            .min_count = 0},
                           text);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const std::vector<BpeMerge> plain = TrainedPlainly(text, merges, parts->tables.tokens);
  ASSERT_EQ(parts->tables.merges.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(parts->tables.merges[i].left, plain[i].left) << i;
    ASSERT_EQ(parts->tables.merges[i].right, plain[i].right) << i;
  }
}

TEST(TrainerTest, MergesAreThoseOfThePlainAlgorithm) {
  // Overlapping pairs of one byte, and words with several of a pair.
  ExpectThePlainMerges(Text() + " aaaa aaaaa banana bananana aaaa aaaaa banana bananana aaaa", 100);
}

TEST(TrainerTest, LongPiecesAreMergedAsAWhole) {
  std::string text = std::string(601, 'a') + " b" + std::string(300, 'a') + "b ";
  uint32_t random = 1;
  for (int i = 0; i < 1500; ++i) {
    random = random * 1664525 + 1013904223;
    text.push_back("abcd"[random >> 30]);
  }
  ExpectThePlainMerges(text, 150);
}

// golden/trained.json is what peer_train.py, which says how, wrote with tokenizers 0.23.3.
TEST(TrainerTest, TheFileIsThatOfTheTokenizersLibrary) {
  const auto parts = Train({.vocab_size = 700,
                            .pattern = std::string(kLlama3Pattern),
                            .specials = {"<|endoftext|>", "on", "<|a b|>"},
                            .min_count = 0},
                           Text());
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(HfFileText(*parts), Golden("trained.json"));
  const auto again = ParseHfFile(HfFileText(*parts));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->tables.tokens, parts->tables.tokens);
}

TEST(TrainerTest, BytesAreNumberedByTheirCharacters) {
  const auto parts = Train({.vocab_size = 256, .pattern = "."}, "ab");
  ASSERT_TRUE(parts.ok()) << parts.status();
  const std::vector<std::string>& tokens = parts->tables.tokens;
  ASSERT_EQ(tokens.size(), 256U);
  EXPECT_EQ(tokens[0], "!");
  EXPECT_EQ(tokens[93], "~");
  EXPECT_EQ(tokens[94], "\xA1");
  EXPECT_EQ(tokens[187], "\xFF");
  EXPECT_EQ(tokens[188], std::string(1, '\0'));
  EXPECT_EQ(tokens[220], " ");
  EXPECT_EQ(tokens[255], "\xAD");
}

// Line ends in a row, which are one piece, lie about every place at which a text could be divided.
TEST(TrainerTest, PiecesAreThoseOfTheWholeText) {
  std::string text;
  while (text.size() < (size_t{9} << 20)) {
    for (int i = 0; i < 100; ++i) text += "\xE3\x80\x82\n\n \r\n\n";
    text += "word 12345 don't\n\n";
  }
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const TrainingText one = {.name = "file.txt", .text = text};
    const auto counted = CountPieces(std::string(pattern), std::span(&one, 1), 3);
    ASSERT_TRUE(counted.ok()) << counted.status();
    const auto plain = CountedPlainly(std::string(pattern), text);
    EXPECT_EQ(counted->size(), plain.size());
    for (const PieceCount& piece : *counted) {
      const auto found = plain.find(piece.piece);
      ASSERT_NE(found, plain.end()) << piece.piece;
      EXPECT_EQ(piece.count, found->second) << piece.piece;
    }
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

TEST(TrainerTest, SpecialsTakeTheFirstIds) {
  const auto parts = Train({.vocab_size = 300,
                            .pattern = std::string(kGpt2Pattern),
                            .specials = {"<|endoftext|>", "<|pad|>"}},
                           Text());
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto tokenizer = MakeBpeTokenizer(*ParseHfFile(HfFileText(*parts)));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 300);
  EXPECT_EQ((*tokenizer)->eod(), 0);
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("<|pad|>!", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(1, 2));
}

TEST(TrainerTest, EndsWhereNoPairIsLeft) {
  const auto parts =
      Train({.vocab_size = 1000, .pattern = std::string(kGpt2Pattern)}, "abab ab xy");
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->tables.tokens.size(), 257U);
  EXPECT_EQ(parts->tables.tokens.back(), "ab");
  // What occurs once: "abab", "xy", and " ab" and " xy".
  for (const int64_t min_count : {0, 1}) {
    const auto all =
        Train({.vocab_size = 1000, .pattern = std::string(kGpt2Pattern), .min_count = min_count},
              "abab ab xy");
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->tables.tokens.size(), 261U);
  }
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
  // As a file spells byte E9, and " ab".
  args.specials = {"\xC3\xA9"};
  EXPECT_THAT(base::Message(Train(args, "ab").status()), HasSubstr("special token \"\xC3\xA9\""));
  args = {.vocab_size = 300,
          .pattern = " ab",
          .specials = {"\xC4\xA0"
                       "ab"}};
  EXPECT_THAT(base::Message(Train(args, " ab ab").status()), HasSubstr("writes the token \" ab\""));
  args = {.vocab_size = 300, .pattern = std::string(kGpt2Pattern)};
  EXPECT_THAT(base::Message(Train(args, "1 " + std::string((size_t{16} << 20) + 1, 'a')).status()),
              HasSubstr("file.txt: the piece of text at offset 1 has 16777218 bytes"));
  args = {.vocab_size = 300, .pattern = ".", .progress = [](int64_t) { return false; }};
  EXPECT_TRUE(absl::IsCancelled(Train(args, "abab").status()));
}

}  // namespace
}  // namespace mt::data
