// Files of tokenizers: what is refused and what the message names; what is written is read again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/worker/data/temp_data.h"
#include "tests/worker/data/tokenizer/golden_files.h"
#include "worker/data/tokenizer.h"
#include "worker/data/tokenizer/gpt2_files.h"
#include "worker/data/tokenizer/hf_file.h"

namespace mt::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class HfFileTest : public ::testing::Test {
 protected:
  // What is said of the file with the value at the path, a JSON pointer.
  std::string Fault(const std::string& path, const json& value) const {
    json changed = root_;
    changed[json::json_pointer(path)] = value;
    const auto parts = ParseHfFile(changed.dump());
    if (!parts.ok()) return base::Message(parts.status());
    const auto made = MakeBpeTokenizer(*parts);
    return base::Message(made.status());
  }
  const json root_ = json::parse(Golden("llama3.json"));
};

TEST_F(HfFileTest, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(Fault("/model/dropout", nullptr), "");
  EXPECT_EQ(Fault("/normalizer", {{"type", "NFC"}}), "");
  EXPECT_THAT(Fault("/normalizer", {{"type", "NFD"}}),
              HasSubstr("normalizer: NFD is not supported"));
  EXPECT_THAT(Fault("/model/type", "Unigram"), HasSubstr("model: Unigram is not supported"));
  EXPECT_EQ(Fault("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}), "");
  EXPECT_THAT(Fault("/normalizer", {{"type", "Prepend"}, {"prepend", "x"}}),
              HasSubstr("normalizer: Prepend is not supported"));
  EXPECT_THAT(Fault("/model/byte_fallback", true), HasSubstr("model: byte_fallback with"));
  EXPECT_THAT(Fault("/model/dropout", 0.1), HasSubstr("model: dropout"));
  EXPECT_THAT(Fault("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(Fault("/pre_tokenizer", {{"type", "Whitespace"}}),
              HasSubstr("pre_tokenizer: Whitespace is not supported"));
  // Without ByteLevel it is a file of characters, whose decoder is another.
  EXPECT_THAT(Fault("/pre_tokenizer", nullptr), HasSubstr("decoder: ByteLevel is not supported"));
  EXPECT_THAT(Fault("/pre_tokenizer/pretokenizers/1/add_prefix_space", true),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(Fault("/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext"),
              HasSubstr("behavior MergedWithNext"));
  EXPECT_THAT(Fault("/pre_tokenizer/pretokenizers/0/pattern/Regex", "a(b"), HasSubstr("PCRE2"));
  EXPECT_THAT(Fault("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder: WordPiece"));
  EXPECT_THAT(Fault("/model", 3), HasSubstr("it has no model"));
}

// The library counts added tokens behind the vocabulary, whatever their ids say.
TEST_F(HfFileTest, IdsThatTheLibraryWouldNotGiveAreRefused) {
  EXPECT_THAT(Fault("/added_tokens/0/id", 1200),
              HasSubstr("\"<|end_of_text|>\" has id 1200 in the file, but the tokenizers library "
                        "takes it for 1199"));
}

TEST_F(HfFileTest, DamageIsNamed) {
  EXPECT_THAT(Fault("/model/vocab/zzz", 97), HasSubstr("id 97 is that of two tokens"));
  EXPECT_THAT(Fault("/model/vocab/zzz", -1), HasSubstr("outside 0 ..."));
  EXPECT_THAT(Fault("/model/vocab/zzz", 200'000'000), HasSubstr("outside 0 ..."));
  EXPECT_THAT(Fault("/model/vocab/zzz", "x"), HasSubstr("is not a whole number"));
  EXPECT_THAT(Fault("/model/vocab", json::object()), HasSubstr("model.vocab"));
  EXPECT_THAT(Fault("/model/merges/5", json::array({"q", "zq"})),
              HasSubstr("model.merges: merge 5, of \"q\" and \"zq\", names \"zq\""));
  EXPECT_THAT(Fault("/model/merges/5", "alone"), HasSubstr("merge 5 is not of two tokens"));
  EXPECT_THAT(Fault("/added_tokens/0/id", 5), HasSubstr("id 5 is that of two tokens"));
  const std::string whole = Golden("llama3.json");
  for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 2}) {
    const auto parts = ParseHfFile(whole.substr(0, size));
    EXPECT_THAT(base::Message(parts.status()), HasSubstr("damaged JSON"));
  }
}

TEST_F(HfFileTest, AVocabularyWithoutAByteIsRefused) {
  json changed = root_;
  changed["model"]["vocab"]["zzzz"] = changed["model"]["vocab"]["!"];
  changed["model"]["vocab"].erase("!");
  changed["model"]["merges"] = json::array();
  const auto made = MakeBpeTokenizer(*ParseHfFile(changed.dump()));
  EXPECT_THAT(base::Message(made.status()), HasSubstr("byte 0x21 has no token"));
}

// As add_tokens of a token that is there already writes it.
TEST_F(HfFileTest, AnAddedTokenMayBeOneThatMergesMake) {
  json changed = root_;
  json added = changed["added_tokens"][0];
  added["content"] = "!";
  added["id"] = changed["model"]["vocab"]["!"];
  changed["added_tokens"].push_back(added);
  const auto made = MakeBpeTokenizer(*ParseHfFile(changed.dump()));
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*made)->Encode("!", &ids).ok());
  EXPECT_EQ(ids, std::vector<int32_t>{added["id"].get<int32_t>()});
  EXPECT_EQ(*(*made)->Decode(ids), "!");
}

TEST_F(HfFileTest, MergesMayBeTextsOrPairs) {
  json changed = root_;
  for (json& merge : changed["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto texts = ParseHfFile(changed.dump());
  const auto pairs = ParseHfFile(root_.dump());
  ASSERT_TRUE(texts.ok() && pairs.ok()) << texts.status();
  ASSERT_EQ(texts->tables.merges.size(), pairs->tables.merges.size());
  EXPECT_EQ(texts->tables.merges.back().result, pairs->tables.merges.back().result);
}

TEST_F(HfFileTest, WhatIsWrittenIsReadAgain) {
  const auto parts = ParseHfFile(root_.dump());
  const auto again = ParseHfFile(HfFileText(*parts));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->tables.tokens, parts->tables.tokens);
  EXPECT_EQ(again->patterns, parts->patterns);
  EXPECT_EQ(again->tables.ignore_merges, parts->tables.ignore_merges);
  EXPECT_EQ(again->tables.merges.size(), parts->tables.merges.size());
  EXPECT_EQ(again->named.size(), 1U);
}

TEST(Gpt2FilesTest, DamageIsNamedByFileAndLine) {
  const std::string vocab = Golden("gpt2_vocab.json");
  const std::string merges = Golden("gpt2_merges.txt");
  const auto fault = [](const std::string& v, const std::string& m) {
    return base::Message(ParseGpt2Files(v, m).status());
  };
  EXPECT_EQ(fault(vocab, merges), "");
  EXPECT_THAT(fault(vocab.substr(0, 100), merges), HasSubstr("vocab.json: damaged JSON"));
  EXPECT_THAT(fault("[]", merges), HasSubstr("vocab.json"));
  EXPECT_THAT(fault(vocab, "#version: 0.2\nt h\nonly\n"),
              HasSubstr("merges.txt: line 3: expected two"));
  EXPECT_THAT(fault(vocab, "t h\nt zzz\n"), HasSubstr("merges.txt: line 2: merge 1"));
  EXPECT_THAT(fault(R"({"\u4e2d": 0})", ""), HasSubstr("not spelled in the byte alphabet"));
}

TEST(RecordTest, IsReadAsItWasWritten) {
  const TempDir dir;
  const std::string prefix = dir.Path("d");
  EXPECT_EQ(*ReadTokenizerRecord(prefix), std::nullopt);
  for (const TokenizerRecord& record :
       {TokenizerRecord{.type = "byte", .vocab_size = 257, .eod = 256},
        TokenizerRecord{
            .type = "hf", .digest = std::string(32, 'a'), .vocab_size = 9, .eod = kNoEod}}) {
    ASSERT_TRUE(WriteTokenizerRecord(prefix, record).ok());
    EXPECT_EQ(**ReadTokenizerRecord(prefix), record);
  }
  for (const char* bad :
       {"", "{}", "[1]", R"({"version": 2})",
        R"({"version": 1, "type": "hf", "digest": "", "vocab_size": 9, "eod": 9})",
        R"({"version": 1, "type": "hf", "digest": "", "vocab_size": 0, "eod": null})",
        R"({"version": 1, "type": "hf", "digest": "", "vocab_size": 99999999999})"}) {
    WriteText(RecordPath(prefix), bad);
    const auto record = ReadTokenizerRecord(prefix);
    EXPECT_TRUE(absl::IsDataLoss(record.status())) << bad;
    EXPECT_THAT(base::Message(record.status()), HasSubstr("d.tokenizer.json"));
  }
}

TEST(RecordTest, ADigestStandsForTheFiles) {
  const TempDir dir;
  const std::string file = MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/llama3.json";
  const auto record = RecordOf({.type = "hf", .file = file}, nullptr);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->vocab_size, 1200);
  // Nothing is parsed where the digest is known: the sizes are those of the known record.
  TokenizerRecord known = *record;
  known.vocab_size = 77;
  EXPECT_EQ(RecordOf({.type = "hf", .file = file}, &known)->vocab_size, 77);
  WriteText(dir.Path("t.json"), Golden("llama3.json") + " ");
  const auto other = RecordOf({.type = "hf", .file = dir.Path("t.json")}, &known);
  EXPECT_EQ(other->vocab_size, 1200);
  EXPECT_NE(other->digest, record->digest);
  EXPECT_TRUE(CheckSameTokenizer(*record, *record, "d").ok());
  EXPECT_THAT(base::Message(CheckSameTokenizer(*record, *other, "d")),
              HasSubstr("tokens of d were made by hf"));
  EXPECT_TRUE(CheckSameTokenizer(*record, {.type = "null", .vocab_size = 5, .eod = 4}, "d").ok());
}

TEST(KeptTokenizerTest, IsTheSameTokenizerInAFolderOfItsDigest) {
  const TempDir dir;
  const std::string golden = MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/";
  const TokenizerConfig hf = {.type = "hf", .file = golden + "llama3.json"};
  const TokenizerConfig gpt2 = {.type = "gpt2_bpe",
                                .vocab = golden + "gpt2_vocab.json",
                                .merges = golden + "gpt2_merges.txt"};
  for (const TokenizerConfig& config : {hf, gpt2}) {
    const std::string digest = (*MakeTokenizer(config))->digest();
    EXPECT_FALSE(FindKeptTokenizer(config.type, digest, dir.path()));
    const Status kept = KeepTokenizer(config, digest, dir.path());
    ASSERT_TRUE(kept.ok()) << kept;
    const auto found = FindKeptTokenizer(config.type, digest, dir.path());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(RecordOf(*found, nullptr)->digest, digest);
    EXPECT_EQ(ReadText(found->file.empty() ? found->merges : found->file),
              ReadText(config.file.empty() ? config.merges : config.file));
    // What is there stays, and is not read again.
    TokenizerConfig gone = config;
    gone.file += gone.file.empty() ? "" : ".gone";
    gone.vocab += gone.vocab.empty() ? "" : ".gone";
    EXPECT_TRUE(KeepTokenizer(gone, digest, dir.path()).ok());
    EXPECT_THAT(dir.Files(), testing::Contains("tokenizer-" + digest));
  }
  // Half of the two files, as a crash leaves them, is none.
  const std::string digest = (*MakeTokenizer(gpt2))->digest();
  std::filesystem::remove(dir.Path("tokenizer-" + digest + "/merges.txt"));
  EXPECT_FALSE(FindKeptTokenizer("gpt2_bpe", digest, dir.path()));
  EXPECT_TRUE(KeepTokenizer(gpt2, digest, dir.path()).ok());
  EXPECT_TRUE(FindKeptTokenizer("gpt2_bpe", digest, dir.path()));
}

TEST(KeptTokenizerTest, FilesThatHaveChangedAreNotKept) {
  const TempDir dir;
  WriteText(dir.Path("t.json"), Golden("llama3.json"));
  const TokenizerConfig config = {.type = "hf", .file = dir.Path("t.json")};
  const std::string digest = (*MakeTokenizer(config))->digest();
  WriteText(dir.Path("t.json"), Golden("llama3.json") + " ");
  const Status kept = KeepTokenizer(config, digest, dir.path());
  EXPECT_TRUE(absl::IsFailedPrecondition(kept)) << kept;
  EXPECT_THAT(base::Message(kept), HasSubstr(digest));
  EXPECT_THAT(dir.Files(), testing::ElementsAre("t.json"));
  // Bytes and ids have no files.
  EXPECT_TRUE(KeepTokenizer({.type = "byte"}, "", dir.path()).ok());
  EXPECT_FALSE(FindKeptTokenizer("byte", "", dir.path()));
}

}  // namespace
}  // namespace mt::data
