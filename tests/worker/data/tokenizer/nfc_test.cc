// NFC, as the tokenizers library has it: golden/nfc_cases.json is what its version 0.23.3 gives
// (peer_nfc.py writes it, test_peers_nfc.py holds it to the package).
#include "worker/data/tokenizer/nfc.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/data/tokenizer/golden_files.h"
#include "tests/worker/data/tokenizer/random_text.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/hf_file.h"

namespace mt::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// llama3.json with NFC and the added tokens, by texts; those of the second list are normalized.
json WithNfc(const std::vector<std::string>& as_is, const std::vector<std::string>& normalized) {
  json file = json::parse(Golden("llama3.json"));
  file["normalizer"] = {{"type", "NFC"}};
  for (const auto* const texts : {&as_is, &normalized}) {
    for (const std::string& text : *texts) {
      json token = file["added_tokens"][0];
      token["id"] = file["model"]["vocab"].size() + file["added_tokens"].size();
      token["content"] = text;
      token["special"] = false;
      token["normalized"] = texts == &normalized;
      file["added_tokens"].push_back(token);
    }
  }
  return file;
}

std::unique_ptr<Tokenizer> TokenizerOf(const json& file) {
  auto made = MakeBpeTokenizer(*ParseHfFile(file.dump()));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(NfcTest, TextsAndIdsAreThoseOfTheLibrary) {
  const json cases = json::parse(Golden("nfc_cases.json"));
  ASSERT_GT(cases["normalized"].size(), 300U);
  for (const json& one : cases["normalized"]) {
    const auto text = one[0].get<std::string>();
    EXPECT_EQ(*Nfc(text), one[1].get<std::string>()) << testing::PrintToString(text);
  }
  json file = WithNfc({"<\xE2\x84\xAB>"}, {"<e\xCC\x81>", "x\xE2\x84\xAA", "  ", "e\xCC\xA3"});
  // In the order of peer_nfc.py's.
  auto& added = file["added_tokens"];
  std::swap(added[1]["content"], added[2]["content"]);
  std::swap(added[1]["normalized"], added[2]["normalized"]);
  added[5]["normalized"] = false;
  added[5]["lstrip"] = true;
  const auto tokenizer = TokenizerOf(file);
  for (const json& one : cases["encoded"]) {
    std::vector<int32_t> ids;
    ASSERT_TRUE(tokenizer->Encode(one[0].get<std::string>(), &ids).ok());
    EXPECT_EQ(ids, one[1].get<std::vector<int32_t>>()) << one[0];
  }
}

// Marks of Unicode 14 have no class there: they stay where they stand, with any ICU.
TEST(NfcTest, WhatCameAfterUnicode9Stays) {
  const std::string newer = "x\xE0\xA2\x98\xCC\xA3";  // x, U+0898, a dot below
  EXPECT_EQ(*Nfc(newer), newer);
  // U+08D4, of the same class, is of 9.0.0.
  EXPECT_EQ(*Nfc("x\xE0\xA3\x94\xCC\xA3"), "x\xCC\xA3\xE0\xA3\x94");
}

TEST(NfcTest, BytesThatAreNoUtf8StayAndNothingJoinsAcrossThem) {
  EXPECT_EQ(*Nfc("e\xFF\xCC\x81 e\xCC\x81\xCC"), "e\xFF\xCC\x81 \xC3\xA9\xCC");
  EXPECT_EQ(*Nfc("\xCC\x81"), "\xCC\x81");
  EXPECT_EQ(*Nfc(""), "");
  EXPECT_TRUE(IsSurelyNfc("na\xC3\xAFve \xCB\xBF"));
  EXPECT_FALSE(IsSurelyNfc("e\xCC\x80"));
}

std::string Times(size_t times, std::string_view text) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// Parts of long texts are cut where characters stand apart; where none does it is refused.
TEST(NfcTest, LongTextsAreTakenInParts) {
  const std::string part = "\xE4\xB8\xAD\xCC\x81\xE1\x84\x80\xE1\x85\xA1";
  const std::string joined = "\xE4\xB8\xAD\xCC\x81\xEA\xB0\x80";
  const size_t times = 2 * kMaxJoinedBytes / part.size();
  EXPECT_TRUE(*Nfc("x" + Times(times, part)) == "x" + Times(times, joined));
  // In the order of their classes already, which takes no time.
  const std::string marks = Times(kMaxJoinedBytes, "\xCC\x81");
  const auto refused = Nfc("text e" + marks);
  EXPECT_EQ(OffsetOf(refused.status()), 5);
  EXPECT_THAT(base::Message(refused.status()), HasSubstr("combining characters in a row"));
  const auto tokenizer = TokenizerOf(WithNfc({"<s>"}, {}));
  std::vector<int32_t> ids;
  EXPECT_EQ(OffsetOf(tokenizer->Encode("a<s>text e" + marks, &ids)), 9);
}

// No offset of the text is left of what was changed; the begin of the part is told.
TEST(NfcTest, ErrorsTellWhereThePartBegins) {
  const auto tokenizer = TokenizerOf(WithNfc({"<s>"}, {}));
  std::vector<int32_t> ids;
  const Status plain = tokenizer->Encode("a<s>bc " + std::string(kMaxPieceBytes, 'x'), &ids);
  EXPECT_EQ(OffsetOf(plain), 6);
  const Status changed =
      tokenizer->Encode("a<s>e\xCC\x81 " + std::string(kMaxPieceBytes, 'x'), &ids);
  EXPECT_EQ(OffsetOf(changed), 4);
  EXPECT_THAT(base::Message(changed), HasSubstr("in the text from there, at offset 2: the piece"));
}

// A cut is beside a space or a line end, to which nothing is joined; a token that NFC finds in
// other characters than its own would be missed there.
TEST(NfcTest, WhatMayBeCutIsTheSameInParts) {
  RandomText texts(3);
  for (int i = 0; i < 300; ++i) {
    const std::string before = texts.Make(6, /*invalid=*/true);
    const std::string behind = texts.Make(6, /*invalid=*/true);
    EXPECT_EQ(*Nfc(before + "a") + *Nfc(" " + behind), *Nfc(before + "a " + behind));
    EXPECT_EQ(*Nfc(before + "\n") + *Nfc(behind), *Nfc(before + "\n" + behind));
  }
  const auto rule = [](const json& file) { return TokenizerOf(file)->cuts().rule; };
  EXPECT_EQ(rule(WithNfc({}, {"<|x|>", "a b", "    ", "xK"})), CutRule::kAfterWord);
  EXPECT_EQ(rule(WithNfc({"\xC3\xA9 b"}, {})), CutRule::kAfterWord);
  EXPECT_EQ(rule(WithNfc({}, {"e\xCC\x81 b"})), CutRule::kNowhere);
  EXPECT_EQ(rule(WithNfc({}, {"K b"})), CutRule::kNowhere);
}

}  // namespace
}  // namespace mt::data
