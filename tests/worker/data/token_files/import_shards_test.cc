// Shards of llm.c and nanoGPT, whose bytes are made here by their description alone.
#include "worker/data/token_files/import_shards.h"

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "tests/worker/data/token_files/from_hex.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string Ids(const std::vector<T>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)};
}

template <class T>
std::string LlmcShard(int32_t magic, int32_t version, const std::vector<T>& ids) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int32_t>(ids.size());
  return Ids(header) + Ids(ids);
}

class ImportShardsTest : public ::testing::Test {
 protected:
  ImportShardsTest() { args_.output = dir_.Path("out"); }

  void AddShard(const std::string& bytes) {
    args_.inputs.push_back(dir_.Path("s" + std::to_string(args_.inputs.size())));
    WriteText(args_.inputs.back(), bytes);
  }
  std::vector<std::vector<int32_t>> Imported() {
    args_.overwrite = true;
    const auto written = ImportShards(args_);
    EXPECT_TRUE(written.ok()) << written.status();
    const auto data = IndexedDataset::Open(args_.output);
    EXPECT_TRUE(data.ok()) << data.status();
    std::vector<std::vector<int32_t>> out;
    for (int64_t i = 0; data.ok() && i < (*data)->num_sequences(); ++i) {
      EXPECT_EQ((*data)->document_begin(i), i);
      out.emplace_back(static_cast<size_t>((*data)->length(i)));
      EXPECT_TRUE((*data)->Read(i, 0, 1 << 20, out.back()).ok());
    }
    if (data.ok()) type_ = (*data)->token_type();
    return out;
  }
  void ExpectRefused(absl::StatusCode code, const std::string& message) {
    const auto written = ImportShards(args_);
    EXPECT_EQ(written.status().code(), code) << written.status();
    EXPECT_THAT(base::Message(written.status()), HasSubstr(message));
    for (const std::string& name : dir_.Files()) EXPECT_EQ(name[0], 's') << name;
  }

  TempDir dir_;
  ImportArgs args_;
  TokenType type_ = TokenType::kU8;
};

TEST_F(ImportShardsTest, NanoGptsIdsWithoutAHeader) {
  AddShard(Ids<uint16_t>({1, 2, 9, 3, 9, 9, 4}));
  AddShard(Ids<uint16_t>({5, 9, 6}));
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1, 2, 9, 3, 9, 9, 4), ElementsAre(5, 9, 6)))
      << "without an EOD each shard is a document";
  EXPECT_EQ(type_, TokenType::kU16);
  args_.eod = 9;
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1, 2, 9), ElementsAre(3, 9), ElementsAre(9),
                                      ElementsAre(4, 5, 9), ElementsAre(6)));
}

// Its scripts write the end-of-document id before each document, so that is what its header means.
TEST_F(ImportShardsTest, LlmcsWithEodAtTheBeginning) {
  args_.eod = 9;
  AddShard(LlmcShard<uint16_t>(20240520, 1, {9, 1, 2, 9, 3}));
  AddShard(LlmcShard<uint16_t>(20240520, 1, {4, 9, 65535}));
  EXPECT_THAT(Imported(),
              ElementsAre(ElementsAre(9, 1, 2), ElementsAre(9, 3, 4), ElementsAre(9, 65535)));
  args_.inputs.clear();
  AddShard(LlmcShard<uint32_t>(20240801, 7, {9, 128000, 2}));
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(9, 128000, 2)));
  EXPECT_EQ(type_, TokenType::kI32);
}

TEST_F(ImportShardsTest, WhereAnEodStandsCanBeSaid) {
  args_.eod = 9;
  AddShard(LlmcShard<uint16_t>(20240520, 1, {1, 9, 2, 3, 9}));
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1), ElementsAre(9, 2, 3), ElementsAre(9)));
  args_.eod_begins = false;
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1, 9), ElementsAre(2, 3, 9)));
  WriteText(args_.inputs[0], Ids<uint16_t>({9, 1, 2, 9, 3}));
  args_.eod_begins = true;
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(9, 1, 2), ElementsAre(9, 3)));
}

TEST_F(ImportShardsTest, ATokenizerGivesEodVocabularyAndRecord) {
  AddShard(Ids<uint16_t>({1, 2, 9, 3, 9}));
  args_.tokenizer = TokenizerRecord{.type = "hf",
                                    .digest = "d",
                                    .vocab_size = 10,
                                    .eod = 9,
                                    .token_bytes = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0}};
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1, 2, 9), ElementsAre(3, 9)));
  EXPECT_EQ(*ReadTokenizerRecord(args_.output), args_.tokenizer);
  // Another id of the same tokenizer, as prepare's --eod names one.
  args_.eod = 2;
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1, 2), ElementsAre(9, 3, 9)));
  EXPECT_EQ((*ReadTokenizerRecord(args_.output))->eod, 2);
  EXPECT_EQ((*ReadTokenizerRecord(args_.output))->token_bytes,
            (std::vector<int32_t>{1, 1, 0, 1, 1, 1, 1, 1, 1, 0}))
      << "the end of a document is no text";
  args_.eod = -1;
  args_.tokenizer->eod = kNoEod;
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1, 2, 9, 3, 9)));
  args_.tokenizer.reset();
  Imported();
  EXPECT_EQ(*ReadTokenizerRecord(args_.output), std::nullopt) << "the old one is gone";
  for (const char* ending : {".bin", ".idx"}) std::filesystem::remove(args_.output + ending);
  args_.tokenizer = TokenizerRecord{.type = "null", .vocab_size = 9, .eod = 8};
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "id 9 at byte 4 is outside the vocabulary of 9");
  args_.eod = 9;
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "the end-of-document id 9 is none of null (9 tokens)");
}

// What litdata 0.2.76 wrote with TokensLoader (u16; i32) and without it: as raw ids they would be
// the table's numbers among others.
TEST_F(ImportShardsTest, ChunksOfLitdataAreRefused) {
  AddShard("");
  for (const char* chunk :
       {"02000000100000001e0000002c00000001000200030004000500060007000200030004000500060007000800",
        "010000000c000000200000000400000005000000300100000400000005000000",
        "020000001000000028000000400000001400000001000000020000002d010000040000000500000014000000"
        "02000000030000002e0100000400000005000000"}) {
    WriteText(args_.inputs[0], FromHex(chunk));
    ExpectRefused(absl::StatusCode::kInvalidArgument, "s0: a chunk of litdata, which is not read");
  }
  // A compressed one is known by the index beside it.
  WriteText(args_.inputs[0], "(\xB5/\xFD..");
  WriteText(dir_.Path("index.json"), R"({"chunks": [{"chunk_bytes": 44, "filename": "s0"}]})");
  EXPECT_THAT(base::Message(ImportShards(args_).status()), HasSubstr("a chunk of litdata"));
  WriteText(dir_.Path("index.json"), R"({"chunks": [{"chunk_bytes": 44, "filename": "s1"}]})");
  EXPECT_TRUE(ImportShards(args_).ok());
}

TEST_F(ImportShardsTest, U32WithoutAHeader) {
  args_.raw_type = TokenType::kI32;
  AddShard(Ids<uint32_t>({1, 100000}));
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(1, 100000)));
  std::filesystem::remove(args_.output + ".bin");
  std::filesystem::remove(args_.output + ".idx");
  args_.inputs.clear();
  AddShard(Ids<uint32_t>({1, 0x80000000U}));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "id 2147483648 at byte 4 is outside");
}

TEST_F(ImportShardsTest, BadShardsAreNamed) {
  ExpectRefused(absl::StatusCode::kInvalidArgument, "no shards");
  const std::string good = LlmcShard<uint16_t>(20240520, 1, {1, 2, 300});
  AddShard(good.substr(0, good.size() - 1));
  ExpectRefused(absl::StatusCode::kDataLoss, "its header tells of 3 ids after 1024 bytes");
  WriteText(args_.inputs[0], good.substr(0, 12));
  ExpectRefused(absl::StatusCode::kDataLoss, "truncated");
  WriteText(args_.inputs[0], LlmcShard<uint16_t>(20240520, 2, {1}));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "of version 2, version 1 is read");
  WriteText(args_.inputs[0], "abc");
  ExpectRefused(absl::StatusCode::kDataLoss, "no whole number of ids");
  WriteText(args_.inputs[0], "");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "hold no ids");
  WriteText(args_.inputs[0], good);
  args_.vocab_size = 300;
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "id 300 at byte 1028 is outside the vocabulary of 300");
  AddShard(LlmcShard<uint32_t>(20240801, 7, {1}));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "one width at a time");
}

}  // namespace
}  // namespace mt::data
