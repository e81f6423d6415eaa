// Which checkpoint is read, and what happens where a job prunes it meanwhile. Folders with an empty
// manifest stand for checkpoints: only names and existence count here.
#include "worker/decode/checkpoint_source.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::decode {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointId;

class CheckpointSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("mt_checkpoint_source_" + base::RandomHex(6));
    fs::remove_all(root_);
    for (const int64_t step : {10, 20, 30}) {
      fs::create_directories(FolderOf(step));
      std::ofstream(FolderOf(step) / "manifest.json") << "{}";
    }
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path FolderOf(int64_t step) const { return root_ / checkpoint::FolderName({step, 1}); }
  // Calls UseCheckpoint; `first` runs in the first call, which then fails.
  Status Use(const CheckpointChoice& choice, const std::function<void()>& first) {
    used_.clear();
    return UseCheckpoint(choice, [&](const CheckpointId& id) {
      used_.push_back(id.step);
      if (used_.size() > 1) return OkStatus();
      first();
      return base::DataLoss("no such file");
    });
  }

  fs::path root_;
  std::vector<int64_t> used_;
};

TEST_F(CheckpointSourceTest, ThePrunedNewestGivesWayToTheNext) {
  const CheckpointChoice newest{.directory = root_.string()};
  EXPECT_TRUE(Use(newest, [&] { fs::remove_all(FolderOf(30)); }).ok());
  EXPECT_EQ(used_, (std::vector<int64_t>{30, 20}));
  // The job has saved another meanwhile.
  const auto save = [&] {
    fs::remove(FolderOf(20) / "manifest.json");
    fs::create_directories(FolderOf(40));
    std::ofstream(FolderOf(40) / "manifest.json") << "{}";
  };
  EXPECT_TRUE(Use(newest, save).ok());
  EXPECT_EQ(used_, (std::vector<int64_t>{20, 40}));
}

TEST_F(CheckpointSourceTest, ADamagedOneDoesNot) {
  EXPECT_TRUE(absl::IsDataLoss(Use({.directory = root_.string()}, [] {})));
  EXPECT_EQ(used_, std::vector<int64_t>{30});
}

TEST_F(CheckpointSourceTest, OneThatWasNamedIsNotReplaced) {
  const auto choice = ChooseCheckpoint(root_.string(), 20, "");
  ASSERT_TRUE(choice.ok()) << choice.status();
  const Status gone = Use(*choice, [&] { fs::remove_all(FolderOf(20)); });
  EXPECT_TRUE(absl::IsNotFound(gone));
  EXPECT_NE(base::Message(gone).find("was removed while it was read"), std::string::npos);
  EXPECT_EQ(used_, std::vector<int64_t>{20});
}

TEST_F(CheckpointSourceTest, SaysWhatIsNotThere) {
  EXPECT_TRUE(absl::IsNotFound(ChooseCheckpoint((root_ / "none").string(), {}, "").status()));
  EXPECT_TRUE(absl::IsNotFound(ChooseCheckpoint(root_.string(), 11, "").status()));
  EXPECT_TRUE(absl::IsNotFound(ChooseCheckpoint(root_.string(), {}, "best").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseCheckpoint(FolderOf(10).string(), 10, "").status()));
  EXPECT_EQ(ChooseCheckpoint(FolderOf(10).string(), {}, "")->id->step, 10);
  EXPECT_FALSE(ChooseCheckpoint(root_.string(), {}, "")->id.has_value());
  for (const int64_t step : {10, 20, 30}) fs::remove_all(FolderOf(step));
  EXPECT_TRUE(absl::IsNotFound(Use({.directory = root_.string()}, [] {})));
}

}  // namespace
}  // namespace mt::decode
