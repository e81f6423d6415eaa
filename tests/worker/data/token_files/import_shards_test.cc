// Shards of llm.c and nanoGPT, whose bytes are made here by their description alone.
#include "worker/data/token_files/import_shards.h"

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"

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

TEST_F(ImportShardsTest, LlmcsWithEodAtTheBeginning) {
  args_.eod = 9;
  args_.eod_begins = true;
  AddShard(LlmcShard<uint16_t>(20240520, 1, {9, 1, 2, 9, 3}));
  AddShard(LlmcShard<uint16_t>(20240520, 1, {4, 9, 65535}));
  EXPECT_THAT(Imported(),
              ElementsAre(ElementsAre(9, 1, 2), ElementsAre(9, 3, 4), ElementsAre(9, 65535)));
  args_.inputs.clear();
  AddShard(LlmcShard<uint32_t>(20240801, 7, {9, 128000, 2}));
  EXPECT_THAT(Imported(), ElementsAre(ElementsAre(9, 128000, 2)));
  EXPECT_EQ(type_, TokenType::kI32);
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
