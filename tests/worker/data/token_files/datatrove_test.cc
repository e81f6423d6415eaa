// Token files of datatrove. The bytes are what datatrove 0.10.1's DocumentTokenizer wrote of the
// documents [1 2 3], [], [4], [5 6 7 8 9] and [299], with the options that the tests name.
#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"
#include "tests/worker/data/token_files/from_hex.h"
#include "worker/data/token_files/import_shards.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using TokenLists = std::vector<std::vector<int32_t>>;

// shuffle_documents=False.
constexpr char kIds[] = "0100020003000400050006000700080009002b01";
constexpr char kEnds[] =
    "03000000000000000300000000000000040000000000000009000000000000000a00000000000000";
constexpr char kMetadata[] = "small.json|2\n10\n10.0 T";
// The same of a vocabulary of 65,537; that of 65,536 gives ids of 2 bytes.
constexpr char kWideIds[] =
    "0100000002000000030000000400000005000000060000000700000008000000090000002b010000";
constexpr char kWideMetadata[] = "big.json|4\n10\n10.0 T";

class DatatroveTest : public ::testing::Test {
 protected:
  DatatroveTest() { args_.output = dir_.Path("out"); }

  // Empty texts are files that are not there.
  std::string Add(const std::string& name, const std::string& ids, const std::string& ends,
                  const std::string& metadata) {
    const std::string path = dir_.Path(name);
    WriteText(path, ids);
    if (!ends.empty()) WriteText(path + ".index", ends);
    if (!metadata.empty()) WriteText(path + ".metadata", metadata);
    args_.inputs.push_back(path);
    return path;
  }
  void AddPlain() { Add("a.ds", FromHex(kIds), FromHex(kEnds), kMetadata); }
  void Clear() {
    args_.inputs.clear();
    for (const std::string& name : dir_.Files()) std::filesystem::remove(dir_.Path(name));
  }
  // Documents with their tokens, those without one included.
  TokenLists Imported() {
    args_.overwrite = true;
    const auto written = ImportShards(args_);
    EXPECT_TRUE(written.ok()) << written.status();
    const auto data = IndexedDataset::Open(args_.output);
    EXPECT_TRUE(data.ok()) << data.status();
    if (!written.ok() || !data.ok()) return {};
    notes_ = written->notes;
    type_ = (*data)->token_type();
    EXPECT_EQ(written->documents, (*data)->num_documents());
    TokenLists out((*data)->num_documents());
    for (int64_t i = 0; i < (*data)->num_sequences(); ++i) {
      auto& document = out[static_cast<size_t>((*data)->DocumentOf(i))];
      EXPECT_TRUE(document.empty());
      document.resize(static_cast<size_t>((*data)->length(i)));
      EXPECT_TRUE((*data)->Read(i, 0, 1 << 20, document).ok());
    }
    return out;
  }
  std::string Refused(absl::StatusCode code) {
    const auto written = ImportShards(args_);
    EXPECT_EQ(written.status().code(), code) << written.status();
    EXPECT_FALSE(std::filesystem::exists(args_.output + ".bin"));
    return base::Message(written.status());
  }

  TempDir dir_;
  ImportArgs args_;
  TokenType type_ = TokenType::kU8;
  std::vector<std::string> notes_;
};

TEST_F(DatatroveTest, DocumentsEndWhereTheIndexSays) {
  const TokenLists documents = {{1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9}, {299}};
  AddPlain();
  EXPECT_EQ(Imported(), documents);
  EXPECT_EQ(type_, TokenType::kU16);
  EXPECT_THAT(notes_, IsEmpty());
  Clear();
  Add("a.ds", FromHex(kWideIds), FromHex(kEnds), kWideMetadata);
  EXPECT_EQ(Imported(), documents);
  EXPECT_EQ(type_, TokenType::kI32);
  // shuffle_documents=True, seed=1.
  Clear();
  Add("00000_00000_doc_shuffled.ds", FromHex("2b01010002000300040005000600070008000900"),
      FromHex("01000000000000000400000000000000040000000000000005000000000000000a00000000000000"),
      kMetadata);
  EXPECT_EQ(Imported(), (TokenLists{{299}, {1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9}}));
}

// eos_token="<|endoftext|>", whose id is 0.
TEST_F(DatatroveTest, AnEodWithinDocumentsDividesWhereItIsGiven) {
  const std::string ids = FromHex("01000200030000000000040000000500060007000800090000002b010000");
  Add("a.ds", ids,
      FromHex("0400000000000000050000000000000007000000000000000d000000000000000f00000000000000"),
      "small.json|2\n15\n15.0 T");
  const TokenLists documents = {{1, 2, 3, 0}, {0}, {4, 0}, {5, 6, 7, 8, 9, 0}, {299, 0}};
  EXPECT_EQ(Imported(), documents);
  args_.tokenizer = TokenizerRecord{.type = "null", .vocab_size = 300, .eod = 5};
  EXPECT_EQ(Imported(), documents) << "the index is enough";
  args_.eod = 0;
  EXPECT_EQ(Imported(), documents) << "it stands where they end";
  args_.eod = 7;
  EXPECT_EQ(Imported()[3], (std::vector<int32_t>{5, 6, 7}));
  args_.eod_begins = true;
  EXPECT_EQ(Imported()[3], (std::vector<int32_t>{5, 6}));
}

TEST_F(DatatroveTest, EitherFileBesideItIsEnough) {
  // save_final_metadata=False.
  for (const char* ids : {kIds, kWideIds}) {
    Add("a.ds", FromHex(ids), FromHex(kEnds), "");
    EXPECT_EQ(Imported().size(), 5U);
    EXPECT_EQ(type_, ids == kIds ? TokenType::kU16 : TokenType::kI32);
    Clear();
  }
  // save_index=False: documents end at the EOD, if it is known.
  Add("a.ds", FromHex(kIds), "", kMetadata);
  EXPECT_EQ(Imported(), (TokenLists{{1, 2, 3, 4, 5, 6, 7, 8, 9, 299}}));
  args_.tokenizer = TokenizerRecord{.type = "null", .vocab_size = 300, .eod = 5};
  EXPECT_EQ(Imported(), (TokenLists{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 299}}));
  Clear();
  Add("a.ds", FromHex(kIds), "", "");
  EXPECT_THAT(Refused(absl::StatusCode::kInvalidArgument),
              HasSubstr("is there to say whether its ids have 2 or 4 bytes"));
  args_.raw_type = TokenType::kU16;
  EXPECT_EQ(Imported().size(), 2U);
  // Names of tokenizers with bars in them, no name, line ends of Windows, names alone.
  for (const char* metadata :
       {"a|b|4|2\n10\n", "Unknown Tokenizer|2|2\n10", "|2\r\n10\r\n10 T", "|2", "org/name\n10"}) {
    WriteText(args_.inputs[0] + ".metadata", metadata);
    EXPECT_EQ(Imported().size(), 2U) << metadata;
  }
}

// shuffle_chunk_size=4: [4 | 5 6 7] and [299 | 1 2 3]; what was left of the documents is not there.
TEST_F(DatatroveTest, WhatIsLostIsSaid) {
  Add("00000_00000_chunk_shuffled.ds", FromHex("04000500060007002b01010002000300"),
      FromHex("0100000000000000040000000000000005000000000000000800000000000000"),
      "small.json|2\n8\n8.00 T");
  EXPECT_EQ(Imported(), (TokenLists{{4}, {5, 6, 7}, {299}, {1, 2, 3}}));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("documents are cut there: " + args_.inputs[0])));
  // A rank without documents; save_loss_metadata=True.
  Clear();
  for (const char* name : {"none.ds", "more.ds"}) {
    Add(name, "", "", "big.json|4\n0\n0.00 T");
    WriteText(dir_.Path(name) + ".index", "");
  }
  EXPECT_THAT(Refused(absl::StatusCode::kInvalidArgument), HasSubstr("the 2 shards hold no ids"));
  AddPlain();
  WriteText(dir_.Path("a.ds.loss"), std::string(10, '\1'));
  EXPECT_EQ(Imported().size(), 5U);
  EXPECT_EQ(type_, TokenType::kU16) << "the empty ones have no say";
  EXPECT_THAT(notes_,
              ElementsAre("left out, since without ids: " + dir_.Path("none.ds") + " and 1 more",
                          HasSubstr("a run learns all ids of: " + dir_.Path("a.ds"))));
}

TEST_F(DatatroveTest, ContradictionsAreNamed) {
  AddPlain();
  const std::string path = args_.inputs[0];
  const auto loss = [&] { return Refused(absl::StatusCode::kDataLoss); };
  const auto invalid = [&] { return Refused(absl::StatusCode::kInvalidArgument); };
  WriteText(path, FromHex(kIds).substr(0, 18));
  EXPECT_THAT(loss(), HasSubstr("a.ds: 18 bytes, but its .metadata tell of 10 ids of 2 bytes"));
  WriteText(path + ".metadata", "x|2\n9\n");
  EXPECT_THAT(loss(), HasSubstr("its .index ends after 10 ids of 2 bytes"));
  std::filesystem::remove(path + ".metadata");
  EXPECT_THAT(loss(), HasSubstr("its .index ends after 10 ids, which have 2 or 4 bytes"));
  WriteText(path, FromHex(kIds));
  args_.raw_type = TokenType::kI32;
  EXPECT_THAT(invalid(), HasSubstr("its ids have 2 bytes by what is beside it, not the 4 of"));
  args_.raw_type.reset();
  WriteText(path + ".metadata", "x|8\n10\n");
  EXPECT_THAT(invalid(), HasSubstr("a.ds.metadata: tells of ids of 8 bytes; those of 2 and 4"));
  WriteText(path + ".metadata", kMetadata);
  WriteText(path + ".index", FromHex(kEnds).substr(0, 39));
  EXPECT_THAT(loss(), HasSubstr("a.ds.index: 39 bytes are no whole number of ends"));
  std::string falling = FromHex(kEnds);
  falling[8] = 2;
  WriteText(path + ".index", falling);
  EXPECT_THAT(loss(), HasSubstr("a.ds.index: document 1 ends at id 2, the one before at 3"));
  WriteText(path + ".index", FromHex(kEnds));
  args_.vocab_size = 299;
  EXPECT_THAT(invalid(), HasSubstr("a.ds: id 299 at byte 18 is outside the vocabulary of 299"));
  args_.vocab_size = 0;
  for (const char* ending : {".index", ".metadata"}) {
    args_.inputs = {path + ending};
    EXPECT_THAT(invalid(), HasSubstr("stands beside a .ds file of datatrove: give the .ds alone"));
  }
}

// Cut at any byte and damaged at any, of each of the three files: refused, or read as it says.
TEST_F(DatatroveTest, NoDamageCrashes) {
  AddPlain();
  args_.overwrite = true;
  int refused = 0;
  for (const char* ending : {"", ".index", ".metadata"}) {
    const std::string path = args_.inputs[0] + ending;
    const std::string good = ReadText(path);
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(static_cast<unsigned char>(bad[at]) ^ 0xFF);
      for (const std::string& text : {good.substr(0, at), bad}) {
        WriteText(path, text);
        const auto written = ImportShards(args_);
        if (written.ok()) continue;
        EXPECT_GT(base::Message(written.status()).size(), 10U);
        ++refused;
      }
    }
    WriteText(path, good);
  }
  EXPECT_GT(refused, 80);
  EXPECT_TRUE(ImportShards(args_).ok());
}

}  // namespace
}  // namespace mt::data
