// Checkpoints named by their job: where they lie is asked of the coordinator, the rest is read
// here.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/pin.h"

namespace mt::client {
namespace {

using checkpoint::Cut;
using testing::HasSubstr;

class CheckpointPlaceTest : public testing::Test {
 protected:
  CheckpointPlaceTest() {
    for (const int64_t step : {4, 8, 12, 16})
      checkpoint::SaveState(directory_, checkpoint::MakeState(step), Cut::kRows);
    EXPECT_TRUE(checkpoint::WriteLabel(directory_, {8, 1}, {.tag = "best", .meta = {}}).ok());
    job_ = MakeJob("tiny", v1::RUNNING);
    job_.set_checkpoint_path(directory_);
    job_.add_ranks()->set_node("node-7");
    server_.state().jobs = {job_};
  }
  Ran Run(std::vector<std::string> args) const {
    args.insert(args.begin(), "checkpoint");
    return Mtctl(&server_, args);
  }
  std::string Folder(int64_t step) const {
    return directory_ + "/" + checkpoint::FolderName({step, 1});
  }

  const checkpoint::TempDir dir_;
  const std::string directory_ = std::filesystem::canonical(dir_.path()).string() + "/ckpt";
  v1::Job job_;
  FakeCoordinator server_;
};

TEST_F(CheckpointPlaceTest, AJobIsItsDirectoryAndWithAStepOrATagOneOfIt) {
  const Ran all = Run({"list", "tiny", "-o", "name"});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(all.out, Run({"list", directory_, "-o", "name"}).out);
  EXPECT_EQ(Run({"verify", "tiny"}).out, Run({"verify", directory_}).out);
  EXPECT_EQ(Run({"inspect", "tiny", "-o", "name"}).out, Folder(16) + "\n") << "the newest";
  EXPECT_EQ(Run({"inspect", "tiny:12", "-o", "name"}).out, Folder(12) + "\n");
  EXPECT_EQ(Run({"inspect", "tiny:best", "-o", "name"}).out, Folder(8) + "\n");
  EXPECT_EQ(Run({"inspect", "tiny:step-00000004-e0001", "-o", "name"}).out, Folder(4) + "\n");
  EXPECT_EQ(Run({"diff", "tiny:best", Folder(8)}).code, 0);
  EXPECT_EQ(Run({"copy", "tiny:best", dir_.File("copies"), "-o", "name"}).code, 0);
  EXPECT_TRUE(base::Exists(dir_.File("copies/step-00000008-e0001/manifest.json")));
  EXPECT_EQ(Run({"pin", "tiny:12"}).code, 0);
  EXPECT_TRUE(checkpoint::IsPinned(Folder(12)));
}

TEST_F(CheckpointPlaceTest, WhatIsNotThereIsNamed) {
  const auto refusal = [this](std::vector<std::string> args) {
    const Ran ran = Run(std::move(args));
    EXPECT_NE(ran.code, 0);
    return ran.err;
  };
  EXPECT_THAT(refusal({"inspect", "tiny:99"}), HasSubstr("step-00000016-e0001"));
  EXPECT_THAT(refusal({"inspect", "tiny:worst"}), HasSubstr("best"));
  EXPECT_THAT(refusal({"list", "other"}), HasSubstr("no job 'other'"));
  // A path that does not exist is no job.
  EXPECT_THAT(refusal({"list", "./tiny"}), HasSubstr("./tiny"));
  EXPECT_THAT(refusal({"list", dir_.File("nowhere")}), HasSubstr(dir_.File("nowhere")));
  server_.state().jobs[0].set_checkpoint_path("/srv/away/tiny");
  EXPECT_THAT(
      refusal({"verify", "tiny"}),
      HasSubstr("job 'tiny' saves to /srv/away/tiny on node node-7, which this machine does not "
                "have: mount the folder here, or run the command there with the path in place of "
                "the job, as in: mtctl checkpoint verify /srv/away/tiny"));
  server_.state().jobs[0].clear_checkpoint_path();
  EXPECT_THAT(refusal({"verify", "tiny"}), HasSubstr("yet: its ranks have not been ready"));
  server_.state().jobs[0].mutable_spec()->mutable_checkpoint()->set_directory("none");
  EXPECT_THAT(refusal({"verify", "tiny"}), HasSubstr("checkpoint.directory is none"));
  // Without a coordinator both are said to be unknown.
  const Ran alone = Mtctl(nullptr, {"checkpoint", "list", "tiny", "--coordinator", "127.0.0.1:1",
                                    "--connect-timeout", "0.25"});
  EXPECT_EQ(alone.code, kExitConnection);
  EXPECT_THAT(alone.err, HasSubstr("no path is named tiny, and no job can be looked up"));
}

TEST_F(CheckpointPlaceTest, APathGoesBeforeAJob) {
  const std::string here = std::filesystem::current_path().string();
  std::filesystem::current_path(dir_.path());
  checkpoint::SaveState(dir_.File("tiny"), checkpoint::MakeState(20), Cut::kRows);
  const Ran listed = Run({"list", "tiny", "-o", "name"});
  std::filesystem::current_path(here);
  EXPECT_THAT(listed.out, HasSubstr("step-00000020-e0001"));
}

// Who asks the coordinator need not give a word that it can give itself.
TEST_F(CheckpointPlaceTest, TheEndOfTheHolderIsKnownFromTheCoordinator) {
  ASSERT_TRUE(
      checkpoint::RaiseFence({.directory = directory_, .job_uid = job_.uid(), .epoch = 1}).ok());
  const Ran living = Run({"delete", "tiny:4", "--yes"});
  EXPECT_NE(living.code, 0);
  EXPECT_TRUE(base::Exists(Folder(4))) << living.err;
  server_.state().jobs[0].set_state(v1::SUCCEEDED);
  // The directory is another job's by now.
  server_.state().jobs[0].set_uid("uid-of-an-earlier-one");
  EXPECT_NE(Run({"delete", "tiny:4", "--yes"}).code, 0);
  EXPECT_TRUE(base::Exists(Folder(4)));
  server_.state().jobs[0].set_uid(job_.uid());
  const Ran ended = Run({"delete", "tiny:4", "--yes"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(base::Exists(Folder(4)));
}

TEST_F(CheckpointPlaceTest, ARunIsRemovedFromAJobsDirectoryOnceTheJobHasEnded) {
  const std::string run = "7d9f1c1e-3a54-4c0a-9a35-5b0f2f8b0f61";
  for (const int64_t step : {1, 2, 3}) {
    checkpoint::SavedState state = checkpoint::MakeState(step, 2);
    state.manifest.run = run;
    checkpoint::SaveState(directory_, state);
  }
  ASSERT_TRUE(
      checkpoint::RaiseFence({.directory = directory_, .job_uid = job_.uid(), .epoch = 1}).ok());
  const std::vector<std::string> remove = {"delete", "tiny", "--run", run, "--yes"};
  const Ran living = Run(remove);
  EXPECT_EQ(living.code, kExitInvalidInput);
  EXPECT_THAT(living.err, HasSubstr("is held by job " + job_.uid()));
  server_.state().jobs[0].set_state(v1::SUCCEEDED);
  const Ran ended = Run(remove);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(base::Exists(directory_ + "/" + checkpoint::FolderName({1, 2})));
  EXPECT_TRUE(base::Exists(Folder(4))) << "another run's";
  EXPECT_THAT(Run({"delete", "tiny:4", "--run", run, "--yes"}).err, HasSubstr("is one checkpoint"));
}

}  // namespace
}  // namespace mt::client
