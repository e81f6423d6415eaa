// Merging, dividing and importing onto a disk that is full: one error that names the file, and what
// was there before is there still, with nothing beside it but parts of a division that are whole.
#include <functional>

#include <gmock/gmock.h>

#include "tests/worker/data/room_limit.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/token_files/import_shards.h"
#include "worker/data/token_files/rearrange.h"

namespace mt::data {
namespace {

using ::testing::HasSubstr;

class FullDiskOfTokensTest : public ::testing::Test {
 protected:
  // Long sequences fill the .bin, many short ones the .idx.
  void SetUp() override {
    WriteDataset(dir_.Path("long"), std::vector<int32_t>(4, 20'000), TokenType::kU16,
                 [](int64_t i, int64_t t) { return static_cast<int32_t>((i + t) % 1000); });
    WriteDataset(dir_.Path("many"), std::vector<int32_t>(5'000, 1), TokenType::kU16,
                 [](int64_t i, int64_t) { return static_cast<int32_t>(i % 1000); });
  }
  // Fails with `room` for each file, naming the output's. Where `whole` of the parts of a division
  // were made before, they are there; all else is as it was.
  void ExpectFull(rlim_t room, const std::string& file, const std::function<Status()>& write,
                  const std::vector<std::string>& whole = {}) {
    for (const bool was_there : {false, true}) {
      for (const std::string name : {"out", "out_0", "out_1"}) {
        std::filesystem::remove(dir_.Path(name + ".bin"));
        std::filesystem::remove(dir_.Path(name + ".idx"));
        if (!was_there) continue;
        WriteDataset(dir_.Path(name), {3}, TokenType::kU16,
                     [](int64_t, int64_t t) { return static_cast<int32_t>(t); });
      }
      std::vector<std::string> expected = dir_.Files();
      Status status;
      {
        const RoomLimit limit(room);
        status = write();
      }
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_THAT(base::Message(status), HasSubstr(dir_.Path(file)));
      EXPECT_THAT(base::Message(status), HasSubstr("free space"));
      for (const std::string& name : whole) {
        EXPECT_GT((*IndexedDataset::Open(dir_.Path(name)))->num_tokens(), 3);
        if (was_there) continue;
        expected.insert(expected.end(), {name + ".bin", name + ".idx"});
      }
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(dir_.Files(), expected);
      for (const std::string name : {"out", "out_0", "out_1"}) {
        if (!was_there || std::ranges::find(whole, name) != whole.end()) continue;
        EXPECT_EQ((*IndexedDataset::Open(dir_.Path(name)))->num_tokens(), 3) << name;
      }
    }
  }

  const TempDir dir_;
};

TEST_F(FullDiskOfTokensTest, AMergeLeavesWhatWasThere) {
  const auto merge = [&](const std::string& name) {
    return MergeDatasets({.inputs = {dir_.Path(name), dir_.Path(name)},
                          .output = dir_.Path("out"),
                          .overwrite = true})
        .status();
  };
  ExpectFull(100'000, "out.bin", [&] { return merge("long"); });
  ExpectFull(100'000, "out.idx", [&] { return merge("many"); });
}

TEST_F(FullDiskOfTokensTest, ADivisionLeavesWhatWasThere) {
  const auto divide = [&](const std::string& name) {
    return DivideDataset({.input = dir_.Path(name),
                          .output = dir_.Path("out"),
                          .shares = {1, 3},
                          .overwrite = true})
        .status();
  };
  ExpectFull(60'000, "out_1.bin", [&] { return divide("long"); });
  ExpectFull(60'000, "out_1.idx", [&] { return divide("many"); }, {"out_0"});
}

TEST_F(FullDiskOfTokensTest, AnImportLeavesWhatWasThere) {
  const auto take = [&](const std::string& shard, int64_t eod) {
    return ImportShards({.inputs = {dir_.Path(shard)},
                         .output = dir_.Path("out"),
                         .eod = eod,
                         .overwrite = true})
        .status();
  };
  ExpectFull(100'000, "out.bin", [&] { return take("long.bin", -1); });
  // Every id ends a document.
  std::string sevens(4'000, '\0');
  for (size_t i = 0; i < sevens.size(); i += 2) sevens[i] = 7;
  WriteText(dir_.Path("sevens"), sevens);
  ExpectFull(10'000, "out.idx", [&] { return take("sevens", 7); });
}

}  // namespace
}  // namespace mt::data
