// BPE over characters, as of Llama 2, and added tokens: golden/llama2_cases.json is what tokenizers
// 0.23.3 gives (peer_llama2.py writes it, test_peers_llama2.py holds it to the package), for
// golden/llama2.json, trained by it, and changes of that file and of llama3.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/sanitized.h"
#include "tests/worker/data/tokenizer/golden_files.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/hf_file.h"

namespace mt::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

StatusOr<std::unique_ptr<Tokenizer>> MadeOf(const json& file) {
  StatusOr<BpeParts> parts = ParseHfFile(file.dump());
  RETURN_IF_ERROR(parts.status());
  return MakeBpeTokenizer(*std::move(parts));
}

class Llama2Test : public ::testing::Test {
 protected:
  json Changed(const json& change) const {
    json file = file_;
    file.merge_patch(change);
    return file;
  }
  std::unique_ptr<Tokenizer> Made(const json& change = json::object()) const {
    auto made = MadeOf(Changed(change));
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  std::string Fault(const json& change = json::object()) const {
    return base::Message(MadeOf(Changed(change)).status());
  }
  static std::vector<int32_t> Encoded(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<int32_t> ids;
    const Status status = tokenizer.Encode(text, &ids);
    EXPECT_TRUE(status.ok()) << status;
    return ids;
  }

  const json file_ = json::parse(Golden("llama2.json"));
};

json Step(const char* type) { return {{"type", type}}; }

json Replace(const std::string& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

json Steps(const char* list, std::vector<json> steps) {
  return {{"type", "Sequence"}, {list, std::move(steps)}};
}

TEST_F(Llama2Test, IdsAndTextsAreThoseOfTheLibrary) {
  const json cases = json::parse(Golden("llama2_cases.json"));
  ASSERT_GT(cases.size(), 15U);
  for (const json& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    json file = json::parse(Golden(one["file"].get<std::string>()));
    file.merge_patch(one["change"]);
    const auto tokenizer = MadeOf(file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const json& encoded : one["encoded"]) {
      const auto text = encoded[0].get<std::string>();
      EXPECT_EQ(Encoded(**tokenizer, text), encoded[1].get<std::vector<int32_t>>()) << text;
    }
    for (const json& decoded : one["decoded"]) {
      const auto text = (*tokenizer)->Decode(decoded[0].get<std::vector<int32_t>>());
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, decoded[1].get<std::string>()) << decoded[0];
    }
  }
}

TEST_F(Llama2Test, BytesThatAreNoUtf8AreTheirTokens) {
  const auto tokenizer = Made();
  EXPECT_EQ(tokenizer->eod(), 2);  // </s>
  std::vector<int32_t> wanted = Encoded(*tokenizer, "x");
  wanted.push_back(3 + 0xFF);
  wanted.push_back(3 + 0x80);
  const std::vector<int32_t> ids = Encoded(*tokenizer, "x\xFF\x80");
  EXPECT_EQ(ids, wanted);
  EXPECT_EQ(*tokenizer->Decode(ids), "x\xEF\xBF\xBD\xEF\xBF\xBD");
}

// A document is one word to this tokenizer, and is cut where no merge reaches over.
TEST_F(Llama2Test, LongDocumentsAreCutWhereTheTokensAreTheSame) {
  const auto tokenizer = Made();
  std::string text;
  while (text.size() <= (kSanitized ? kMaxPieceBytes / 16 : kMaxPieceBytes))
    text += "the two words, \xE4\xB8\xAD\xF0\x9F\x98\x80";
  const std::vector<int32_t> ids = Encoded(*tokenizer, text);
  EXPECT_EQ(*tokenizer->Decode(ids), text);
  const std::string two_marks = "\xE2\x96\x81\xE2\x96\x81";
  const json merge = json::array({"\xE2\x96\x81", "\xE2\x96\x81"});
  const std::string run = "x <s>" + std::string(kMaxPieceBytes, ' ');
  std::vector<int32_t> none;
  const Status status =
      Made({{"model", {{"vocab", {{two_marks, 509}}}, {"merges", json::array({merge})}}}})
          ->Encode(run, &none);
  EXPECT_THAT(base::Message(status),
              HasSubstr("at offset 5: in the text from there, a piece of 50331651 bytes"));
  EXPECT_EQ(OffsetOf(status), 5);
  EXPECT_EQ(tokenizer->cuts().rule, CutRule::kNowhere);
}

// Each match looks over the white space behind it, and the next one stands in it.
TEST_F(Llama2Test, AddedTokensOfWhiteSpaceTakeOneLookAtIt) {
  json added = file_["added_tokens"];
  for (const char* text : {" ", "  "}) {
    added.push_back({{"id", 506 + added.size()}, {"content", text}, {"rstrip", true}});
    added.back()["lstrip"] = added.back()["normalized"] = added.back()["single_word"] = false;
  }
  const auto tokenizer = Made({{"added_tokens", added}});
  EXPECT_EQ(Encoded(*tokenizer, std::string(2'000'000, ' ')).size(), 1'000'000U);
}

TEST_F(Llama2Test, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(Fault(), "");
  EXPECT_THAT(Fault({{"normalizer", Step("NFKC")}}), HasSubstr("normalizer: NFKC is not"));
  EXPECT_THAT(Fault({{"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}}}}),
              HasSubstr("normalizer.Replace: a regular expression"));
  EXPECT_THAT(Fault({{"normalizer", Replace("", "x")}}), HasSubstr("an empty pattern"));
  const json doubled = Replace("a", "aaaaa");
  EXPECT_THAT(Fault({{"normalizer", Steps("normalizers", {doubled, doubled})}}),
              HasSubstr("text that becomes 5 times as long"));
  EXPECT_THAT(Fault({{"normalizer", {{"type", "Prepend"}, {"prepend", std::string(300, 'x')}}}}),
              HasSubstr("normalizer.Prepend: prepend of 300 bytes"));
  EXPECT_THAT(Fault({{"normalizer", Steps("normalizers", std::vector<json>(40, doubled))}}),
              HasSubstr("normalizer.Sequence: so many steps"));
  EXPECT_THAT(Fault({{"pre_tokenizer", Step("Whitespace")}}),
              HasSubstr("pre_tokenizer: Whitespace is not"));
  EXPECT_THAT(Fault({{"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "__"}}}}),
              HasSubstr("pre_tokenizer.Metaspace: replacement that is not one character"));
  json rule = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  EXPECT_THAT(Fault({{"pre_tokenizer", rule}}), HasSubstr("prepend_scheme first after a"));
  rule["prepend_scheme"] = "last";
  EXPECT_THAT(Fault({{"pre_tokenizer", rule}}), HasSubstr("prepend_scheme last"));
  rule["prepend_scheme"] = "always";
  rule["add_prefix_space"] = false;
  EXPECT_THAT(Fault({{"pre_tokenizer", rule}}), HasSubstr("add_prefix_space with"));
  EXPECT_THAT(Fault({{"decoder", nullptr}}), HasSubstr("decoder: none"));
  EXPECT_THAT(Fault({{"decoder", Step("WordPiece")}}), HasSubstr("decoder: WordPiece"));
  EXPECT_THAT(Fault({{"decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}}}}),
              HasSubstr("decoder.Strip: its start"));
}

TEST_F(Llama2Test, DamageIsNamed) {
  EXPECT_THAT(Fault({{"model", {{"byte_fallback", false}, {"unk_token", "<none>"}}}}),
              HasSubstr("model.unk_token: \"<none>\" is not in the vocabulary"));
  EXPECT_EQ(Fault({{"model", {{"unk_token", "<none>"}}}}), "");  // no character needs it
  EXPECT_THAT(Fault({{"model", {{"unk_token", 3}}}}), HasSubstr("not the text of a token"));
  EXPECT_THAT(Fault({{"model", {{"vocab", {{"", 509}}}}}}), HasSubstr("token 509 has no text"));
  EXPECT_THAT(Fault({{"model", {{"merges", json::array({"a b c"})}}}}),
              HasSubstr("merge 0 is not of two"));
  json added = file_["added_tokens"];
  added.push_back({{"id", 600}, {"content", "<n>"}, {"normalized", true}});
  EXPECT_THAT(Fault({{"added_tokens", added}}), HasSubstr("\"<n>\" has id 600 in the file, but"));
  added.back()["id"] = 509;
  EXPECT_EQ(Fault({{"added_tokens", added}}), "");
  EXPECT_THAT(Fault({{"added_tokens", added}, {"normalizer", Replace("<n>", "")}}),
              HasSubstr("the normalizer leaves nothing of added token 509, \"<n>\""));
  added.push_back({{"id", 510}, {"content", "<m>"}, {"normalized", true}});
  EXPECT_THAT(Fault({{"added_tokens", added}, {"normalizer", Replace("m", "n")}}),
              HasSubstr("added tokens 509 and 510 are found by the same text, \"<n>\""));
  added.back() = added[3];
  EXPECT_THAT(Fault({{"added_tokens", added}}), HasSubstr("\"<n>\" is there twice"));
}

}  // namespace
}  // namespace mt::data
