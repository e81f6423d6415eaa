// Data files that are changed under a run: nothing is saved of what it read since the last save,
// all ranks end together, and the job goes on from there when the data are back.
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "common/base/files.h"
#include "common/rpc/reason.h"
#include "megatrain/v1/step.pb.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DataChangedTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    whole_ = base::ReadFile(bin_).value();
  }
  // The file itself, not another one in its place.
  void WriteInPlace(const std::string& bytes) const {
    std::ofstream(bin_, std::ios::binary | std::ios::in).write(bytes.data(), std::ssize(bytes));
    fs::resize_file(bin_, bytes.size());
  }
  // Rank 0 does so once step 7 is done; saves are due after every fifth.
  std::vector<RankOutcome> RunWith(const std::function<void()>& change,
                                   std::vector<std::string> overrides = {}) {
    adjust_ = [change](int rank, TrainArgs* args) {
      if (rank != 0) return;
      args->after_step = [change](int64_t step, const params::ParamStore&) {
        if (step == 7) change();
      };
    };
    overrides.insert(overrides.begin(), {"checkpoint.every_iters=5", "checkpoint.keep_last=9"});
    auto outcomes = Run(std::move(overrides));
    adjust_ = nullptr;
    return outcomes;
  }
  std::string OtherTokens() const {
    std::string other = whole_;
    for (size_t i = 0; i < other.size(); i += 2) {
      if (other[i + 1] == 0) other[i] = 'a';  // no end of a document
    }
    return other;
  }

  const std::string bin_ = dir_.path() + "/data/text.bin";
  std::string whole_;
};

TEST_F(DataChangedTest, NothingIsSavedOfTokensThatWereWrittenOver) {
  for (const char* save : {"checkpoint.async_save=false", "checkpoint.async_save=true"}) {
    SCOPED_TRACE(save);
    fs::remove_all(dir_.path() + "/checkpoints");
    const auto outcomes =
        RunWith([this] { WriteInPlace(OtherTokens()); }, {"parallel.data=2", save});
    for (size_t rank = 0; rank < 2; ++rank) {
      const Status& status = outcomes[rank].result.status;
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_EQ(failure::CauseOf(status), failure::Cause::kUserError) << "each sees its own file";
      EXPECT_THAT(base::Message(status), AllOf(HasSubstr(bin_), HasSubstr("data.allow_changed")));
      // A save beside training may be left out while the one before is under way.
      EXPECT_GE(outcomes[rank].result.last_step, 10);
      EXPECT_EQ(outcomes[rank].result.last_step, outcomes[0].result.last_step);
    }
    EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{5}));
    // With other data the job is refused, with its own it goes on.
    EXPECT_FALSE(Run({"parallel.data=2"})[0].created);
    WriteInPlace(whole_);
    ExpectClean(Run({"parallel.data=2"}), 20);
  }
}

TEST_F(DataChangedTest, ADataSetThatOneRankSeesChangedEndsAll) {
  const std::string root = dir_.path() + "/own";
  ASSERT_TRUE(base::MakeDirs(root).ok());
  for (const char* ending : {".idx", ".bin"})
    fs::copy_file(dir_.path() + "/data/text" + ending, root + "/text" + ending);
  adjust_ = [&](int rank, TrainArgs* args) {
    if (rank != 1) return;
    args->data_root = root;
    args->after_step = [&](int64_t step, const params::ParamStore&) {
      if (step == 7) fs::resize_file(root + "/text.bin", whole_.size() - 2);
    };
  };
  const auto outcomes = Run({"parallel.data=2", "checkpoint.every_iters=10"});
  for (size_t rank = 0; rank < 2; ++rank) {
    const Status& status = outcomes[rank].result.status;
    EXPECT_THAT(base::Message(status), HasSubstr(root + "/text.bin"));
    EXPECT_EQ(failure::CauseOf(status),
              rank == 1 ? failure::Cause::kStorage : failure::Cause::kNetwork)
        << status;
    EXPECT_EQ(rpc::ReasonOf(status), rank == 1 ? rpc::reason::kDataMissing : "");
  }
  EXPECT_TRUE(StepsOnDisk().empty());
}

TEST_F(DataChangedTest, TokensThatMayChangeAreTrainedOn) {
  ExpectClean(RunWith([this] { WriteInPlace(OtherTokens()); }, {"data.allow_changed=true"}), 20);
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{5, 10, 15, 20}));
}

TEST_F(DataChangedTest, DataThatWereReplacedOnPurposeAreGoneOnWith) {
  ExpectClean(Run({"training.exit_at_iter=10", "checkpoint.at_end=true"}), 10);
  WriteTokens(dir_.path() + "/data/text", 210);
  const RankOutcome refused = Run({})[0];
  EXPECT_FALSE(refused.created);
  EXPECT_THAT(base::Message(refused.result.status), HasSubstr("data.allow_changed"));
  const auto taken = Run({"data.allow_changed=true"});
  ExpectClean(taken, 20);
  EXPECT_EQ(taken[0].seen.infos.at(0).resumed_from_step, 10);
}

TEST_F(DataChangedTest, AFileThatIsCutEndsTheRunWithItsNameAndTheStorageAsTheCause) {
  const auto outcomes = RunWith([this] { fs::resize_file(bin_, 0); });
  const Status& status = outcomes[0].result.status;
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(base::Message(status), AllOf(HasSubstr(bin_), HasSubstr("0 bytes"),
                                           HasSubstr("had " + std::to_string(whole_.size()))));
  EXPECT_EQ(failure::CauseOf(status), failure::Cause::kStorage);
  EXPECT_EQ(rpc::ReasonOf(status), rpc::reason::kDataMissing);
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{5}));
  // The step in which it was missed has not been trained.
  ASSERT_FALSE(outcomes[0].seen.steps.empty());
  for (const StepRecord& step : outcomes[0].seen.steps)
    EXPECT_TRUE(std::isfinite(step.loss())) << step.step();
  EXPECT_EQ(outcomes[0].seen.steps.back().step(), std::ssize(outcomes[0].seen.steps));
  // As long as it is so no start is well, and each says what a job that has trained waits for.
  const RankOutcome again = Run({})[0];
  EXPECT_FALSE(again.created);
  EXPECT_EQ(rpc::ReasonOf(again.result.status), rpc::reason::kDataMissing);
  EXPECT_EQ(failure::CauseOf(again.result.status), failure::Cause::kUserError);
  WriteInPlace(whole_);
  const auto back = Run({});
  ExpectClean(back, 20);
  EXPECT_EQ(back[0].seen.infos.at(0).resumed_from_step, 5);
}

TEST_F(DataChangedTest, AFileThatIsReplacedByAnotherIsReadToTheEnd) {
  const auto outcomes =
      RunWith([this] { ASSERT_TRUE(base::WriteFileAtomic(bin_, OtherTokens()).ok()); });
  ExpectClean(outcomes, 20);
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{5, 10, 15, 20}));
}

}  // namespace
}  // namespace mt::train
