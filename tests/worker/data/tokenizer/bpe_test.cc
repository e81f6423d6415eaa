// Encoding against a plain form of the algorithm, its inverse on any bytes, and goldens of two
// other programs: gpt2_ids.txt is npm's tiktoken 1.0.22 with GPT-2's first 600 merges,
// llama3_ids.txt
// @huggingface/tokenizers 0.2.0 with llama3.json, a vocabulary of ours with ignore_merges and with
// merges taken out of it.
#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/tokenizer/golden_files.h"
#include "tests/worker/data/tokenizer/random_text.h"
#include "worker/data/tokenizer.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/gpt2_files.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> GoldenIds(const std::string& name) {
  std::istringstream in(Golden(name));
  return {std::istream_iterator<int32_t>(in), std::istream_iterator<int32_t>()};
}

std::unique_ptr<Tokenizer> Made(const TokenizerConfig& config) {
  auto made = MakeTokenizer(config);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::unique_ptr<Tokenizer> Gpt2() {
  return Made({.type = "gpt2_bpe",
               .vocab = GoldenPath("gpt2_vocab.json"),
               .merges = GoldenPath("gpt2_merges.txt")});
}

std::unique_ptr<Tokenizer> Llama3() {
  return Made({.type = "hf", .file = GoldenPath("llama3.json")});
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  const Status status = tokenizer.Encode(text, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

TEST(BpeTest, IdsAreThoseOfOtherPrograms) {
  EXPECT_EQ(Ids(*Gpt2(), Golden("text.txt")), GoldenIds("gpt2_ids.txt"));
  EXPECT_EQ(Ids(*Llama3(), Golden("text.txt")), GoldenIds("llama3_ids.txt"));
}

TEST(BpeTest, DecodeGivesBackAnyBytes) {
  RandomText random(3);
  for (const auto& tokenizer : {Gpt2(), Llama3()}) {
    for (int i = 0; i < 300 && !HasFailure(); ++i) {
      const std::string text = i % 2 == 0 ? random.Bytes(static_cast<size_t>(i) * 7)
                                          : random.Make(static_cast<size_t>(i), /*invalid=*/true);
      const auto decoded = tokenizer->Decode(Ids(*tokenizer, text));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(*decoded, text);
    }
  }
}

// The lowest rank first, the leftmost of equals, by trying all pairs.
std::vector<int32_t> MergedPlainly(const BpeTables& tables, std::string_view piece) {
  std::vector<int32_t> ids;
  for (const char byte : piece) {
    const auto found = std::ranges::find(tables.tokens, std::string(1, byte));
    ids.push_back(static_cast<int32_t>(found - tables.tokens.begin()));
  }
  for (bool merged = true; merged;) {
    merged = false;
    for (const BpeMerge& merge : tables.merges) {
      for (size_t i = 0; i + 1 < ids.size() && !merged; ++i) {
        if (ids[i] != merge.left || ids[i + 1] != merge.right) continue;
        ids[i] = merge.result;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
  }
  return ids;
}

// Short pieces and long ones go different ways, and met ones another.
TEST(BpeTest, EveryWayOfMergingGivesThePlainResult) {
  const auto parts = ParseGpt2Files(Golden("gpt2_vocab.json"), Golden("gpt2_merges.txt"));
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto model = BpeModel::Create(parts->tables);
  ASSERT_TRUE(model.ok()) << model.status();
  BpeScratch scratch;
  std::mt19937 random(11);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    std::string piece;
    const size_t size = 1 + random() % (i % 4 == 0 ? 200 : 40);
    while (piece.size() < size) piece += "etaoinshr  aaaa"[random() % 15];
    for (int again = 0; again < 2; ++again) {
      std::vector<int32_t> ids;
      model->Encode(piece, &scratch, &ids);
      EXPECT_EQ(ids, MergedPlainly(parts->tables, piece)) << piece;
    }
  }
}

// Ids of the tokenizers library 0.23.3 with the same vocabulary and merges.
TEST(BpeTest, OfAMergeThatIsListedTwiceTheLastRankHolds) {
  BpeTables tables;
  for (int byte = 0; byte < 256; ++byte) tables.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"ab", "bc", "abc", "cd"}) tables.tokens.emplace_back(token);
  const auto ids_of = [&](std::vector<BpeMerge> merges, std::string_view piece) {
    tables.merges = std::move(merges);
    const auto model = BpeModel::Create(tables);
    EXPECT_TRUE(model.ok()) << model.status();
    BpeScratch scratch;
    std::vector<int32_t> ids;
    model->Encode(piece, &scratch, &ids);
    return ids;
  };
  const BpeMerge ab = {'a', 'b', 256}, bc = {'b', 'c', 257}, cd = {'c', 'd', 259};
  EXPECT_THAT(ids_of({ab, bc}, "abc"), ElementsAre(256, 99));
  EXPECT_THAT(ids_of({ab, bc, ab}, "abc"), ElementsAre(97, 257));
  EXPECT_THAT(ids_of({ab, bc, cd, ab}, "abcd"), ElementsAre(97, 257, 100));
  EXPECT_THAT(ids_of({ab, bc, ab, bc}, "abc"), ElementsAre(256, 99));
}

TEST(BpeTest, InvalidBytesAreAPieceOfTheirOwn) {
  // "\xE2\x80" would merge with a following byte of the alphabet if pieces did not end there.
  const auto tokenizer = Gpt2();
  std::vector<int32_t> apart = Ids(*tokenizer, "ab");
  for (const std::string_view part : {"\xE2\x80", " the"}) {
    const std::vector<int32_t> ids = Ids(*tokenizer, part);
    apart.insert(apart.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(Ids(*tokenizer, "ab\xE2\x80 the"), apart);
}

TEST(BpeTest, AddedTokensAreFoundInTextByTypeHfAlone) {
  const auto llama = Llama3();
  EXPECT_EQ(llama->eod(), llama->vocab_size() - 1);
  EXPECT_THAT(Ids(*llama, "<|end_of_text|>"), ElementsAre(llama->eod()));
  EXPECT_THAT(*llama->Decode(std::vector<int32_t>{llama->eod()}), "<|end_of_text|>");
  const auto gpt2 = Gpt2();
  EXPECT_EQ(gpt2->eod(), 856);
  EXPECT_GT(Ids(*gpt2, "<|endoftext|>").size(), 1U);
}

TEST(BpeTest, TheLongestOfAddedTokensAtAPlaceWins) {
  BpeParts parts = *ParseGpt2Files(Golden("gpt2_vocab.json"), Golden("gpt2_merges.txt"));
  parts.named = {
      {.text = "<a>", .id = 900}, {.text = "<a><b>", .id = 901}, {.text = "#", .id = 902}};
  const auto tokenizer = MakeBpeTokenizer(parts);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 903);
  EXPECT_THAT(Ids(**tokenizer, "<a><a><b>#"), ElementsAre(900, 901, 902));
  // Ids between the tokens and the added ones have none.
  const auto hole = (*tokenizer)->Decode(std::vector<int32_t>{890});
  EXPECT_THAT(base::Message(hole.status()), HasSubstr("has no token"));
}

TEST(BpeTest, APieceAboveTheLimitIsRefusedByItsOffset) {
  const auto tokenizer = Gpt2();
  std::vector<int32_t> ids;
  const std::string text = "one two " + std::string(kMaxPieceBytes + 1, 'x');
  const Status status = tokenizer->Encode(text, &ids);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(base::Message(status),
              HasSubstr("at offset 7: the piece of text has 16777218 bytes"));
}

TEST(BpeTest, IdsOutsideTheVocabularyAreRefused) {
  const auto tokenizer = Gpt2();
  for (const int32_t id : {-1, 857}) {
    const auto decoded = tokenizer->Decode(std::vector<int32_t>{id});
    EXPECT_TRUE(absl::IsInvalidArgument(decoded.status())) << id;
  }
}

TEST(BpeTest, WhatEndsADocumentCanBeChosen) {
  TokenizerConfig config = {.type = "hf", .file = GoldenPath("llama3.json"), .eod = "a"};
  EXPECT_EQ(Made(config)->eod(), 'a');
  config.eod = "<nowhere>";
  EXPECT_THAT(base::Message(MakeTokenizer(config).status()), HasSubstr("<nowhere>"));
}

TEST(MakeTokenizerTest, FilesGoWithTheirTypes) {
  const auto fault = [](const TokenizerConfig& config) {
    return base::Message(MakeTokenizer(config).status());
  };
  EXPECT_THAT(fault({.type = "hf"}), HasSubstr("hf: its file is missing"));
  EXPECT_THAT(fault({.type = "gpt2_bpe", .vocab = "v"}), HasSubstr("its merges is missing"));
  EXPECT_THAT(fault({.type = "byte", .file = "f"}), HasSubstr("it takes no file"));
  EXPECT_THAT(fault({.type = "klingon"}), HasSubstr("unknown; byte, null (or ids), gpt2_bpe"));
  EXPECT_THAT(fault({.type = "hf", .file = "/nowhere.json"}), HasSubstr("/nowhere.json"));
  EXPECT_EQ(Made({.type = "ids", .vocab_size = 100})->name(), "null");
}

}  // namespace
}  // namespace mt::data
