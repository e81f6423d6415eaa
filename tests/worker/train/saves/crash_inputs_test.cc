// Bad checkpoints and bad storage, one by one, under a coordinator that knows the newest step: the
// next start says what is wrong and waits, or takes the newest checkpoint that is whole and says
// which it passed over. It never starts cold, and what comes back is found again.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/rpc/reason.h"
#include "tests/worker/train/saves/crash_rig.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::train {
namespace {

using Kind = crash::Operation::Kind;

constexpr int64_t kNewest = 24, kBefore = 16;

class CrashInputsTest : public CrashTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    run_ = RunLogged(Disk("disk"), nullptr);
    ExpectClean(run_.outcomes, kLastStep);
    whole_ = crash::ReadTree(Disk("disk"));
  }
  std::string Newest() const {
    return DirectoryOn(Disk("disk")) + "/" + checkpoint::FolderName({kNewest, 1});
  }
  // Changes the bytes of a file of the newest checkpoint.
  void Edit(const std::string& file, const std::function<void(std::string*)>& edit) const {
    std::string bytes = base::ReadFile(Newest() + "/" + file).value();
    edit(&bytes);
    ASSERT_TRUE(base::WriteFileAtomic(Newest() + "/" + file, bytes).ok());
  }
  // A start whose coordinator knows the newest step.
  std::vector<RankOutcome> Start() {
    base_ = checkpoint::ResumeBase{.job_uid = "", .step = kNewest};
    return GoOn(Disk("disk"));
  }
  void ExpectRefused(const std::vector<RankOutcome>& ranks, const std::string& part) const {
    for (const RankOutcome& rank : ranks) EXPECT_FALSE(rank.created);
    EXPECT_NE(base::Message(ranks[0].result.status).find(part), std::string::npos)
        << ranks[0].result.status;
    EXPECT_NE(base::Message(ranks[0].result.status).find(std::to_string(kNewest)),
              std::string::npos)
        << ranks[0].result.status;
  }
  void ExpectFrom(const std::vector<RankOutcome>& ranks, int64_t step) const {
    for (const RankOutcome& rank : ranks)
      ASSERT_TRUE(rank.result.status.ok()) << rank.result.status;
    const Observed& seen = ranks[0].seen;
    EXPECT_EQ(seen.infos.at(0).resumed_from_step, step);
    ASSERT_FALSE(seen.steps.empty());
    for (const StepRecord& got : seen.steps) {
      EXPECT_EQ(got.loss(),
                run_.outcomes[0].seen.steps.at(static_cast<size_t>(got.step()) - 1).loss());
    }
    const std::vector<std::string>& damaged = seen.infos.at(0).damaged_checkpoints;
    ASSERT_EQ(damaged.size(), step == kNewest ? 0U : 1U);
    if (step == kNewest) return;
    EXPECT_TRUE(damaged[0].starts_with(checkpoint::FolderName({kNewest, 1}) + ": ")) << damaged[0];
  }

  LoggedRun run_;
  crash::Tree whole_;
};

TEST_F(CrashInputsTest, DamageIsPassedOverAndSaid) {
  const auto half = [](std::string* bytes) { bytes->resize(bytes->size() / 2); };
  const auto empty = [](std::string* bytes) { bytes->clear(); };
  const auto flip = [](std::string* bytes) { (*bytes)[bytes->size() - 9] ^= 4; };
  const auto zeros = [](std::string* bytes) { bytes->assign(bytes->size(), '\0'); };
  int cases = 0;
  for (const char* file :
       {"rank-00000.safetensors", "rank-00001.safetensors", "rank-00000.json", "rank-00001.json"}) {
    const std::map<std::string, std::function<void()>> damages = {
        {"cut in half", [&] { Edit(file, half); }},
        {"empty", [&] { Edit(file, empty); }},
        {"a flipped bit", [&] { Edit(file, flip); }},
        {"zeros", [&] { Edit(file, zeros); }},
        {"missing", [&] { std::filesystem::remove(Newest() + "/" + file); }},
        {"a folder", [&] {
           std::filesystem::remove(Newest() + "/" + file);
           std::filesystem::create_directory(Newest() + "/" + file);
         }}};
    for (const auto& [what, damage] : damages) {
      SCOPED_TRACE(std::string(file) + ": " + what);
      crash::WriteTree(whole_, Disk("disk"));
      damage();
      const std::vector<RankOutcome> ranks = Start();
      if (what == "a folder" && !ranks[0].created) {
        ExpectRefused(ranks, file);
      } else {
        ExpectFrom(ranks, kBefore);
      }
      ++cases;
    }
  }
  for (const auto& edit :
       std::vector<std::function<void(std::string*)>>{half, empty, flip, zeros}) {
    SCOPED_TRACE("manifest");
    crash::WriteTree(whole_, Disk("disk"));
    Edit("manifest.json", edit);
    ExpectFrom(Start(), kBefore);
    ++cases;
  }
  EXPECT_EQ(cases, 28);
}

// It is whole, for a program that can read it.
TEST_F(CrashInputsTest, AManifestOfANewerVersionIsNoDamage) {
  Edit("manifest.json", [](std::string* bytes) {
    const size_t at = bytes->find("\"version\": ") + 11;
    bytes->replace(at, 1, "99");
  });
  ExpectRefused(Start(), "use a newer Megatrain");
}

// As on a file server whose clients see a rename late: the folder has its unfinished name, then
// nothing, then it is there.
TEST_F(CrashInputsTest, ARenameThatIsSeenLateIsWaitedFor) {
  const std::string unfinished = Newest() + ".tmp", away = Disk("away");
  std::filesystem::rename(Newest(), unfinished);
  const crash::Tree before = crash::ReadTree(Disk("disk"));
  ExpectRefused(Start(), "step 16");
  std::filesystem::rename(unfinished, away);
  ExpectRefused(Start(), "step 16");
  std::filesystem::rename(away, unfinished);
  const crash::Tree after = crash::ReadTree(Disk("disk"));
  EXPECT_EQ(crash::Describe(after), crash::Describe(before)) << "nothing is written or removed";
  std::filesystem::rename(unfinished, Newest());
  ExpectFrom(Start(), kNewest);
}

TEST_F(CrashInputsTest, ADirectoryThatComesBackIsGoneOnFrom) {
  std::filesystem::rename(DirectoryOn(Disk("disk")), Disk("away"));
  ExpectRefused(Start(), "missing");
  std::filesystem::rename(Disk("away"), DirectoryOn(Disk("disk")));
  ExpectFrom(Start(), kNewest);
}

// A file system that can be read and not written, or is full, from the second save on until the
// fourth has failed.
TEST_F(CrashInputsTest, StorageThatTakesNothingForAWhileLosesNoStep) {
  for (const int error : {EROFS, ENOSPC, EIO, ESTALE}) {
    SCOPED_TRACE(std::strerror(error));
    std::atomic<bool> fails = false;
    int tries = 0;
    told_saved_ = [&](int64_t step) {
      if (step == 8) fails = true;
    };
    const LoggedRun run = RunLogged(Disk("disk"), [&](const crash::Operation& next) {
      const bool reads = next.kind == Kind::kOpen || next.kind == Kind::kRead;
      if (!fails || reads) return crash::Fault{};
      if (next.kind == Kind::kMakeFolder && ++tries == 2) fails = false;
      return crash::Fault{.error = error};
    });
    ExpectClean(run.outcomes, kLastStep);
    const Observed& seen = run.outcomes[0].seen;
    ExpectEqualCurve(seen.steps, run_.outcomes[0].seen.steps);
    ASSERT_EQ(seen.failed_saves.size(), 2U);
    EXPECT_EQ(seen.failed_saves[0].first, 12);
    EXPECT_EQ(seen.failed_saves[1].first, 16);
    for (const auto& [step, why] : seen.failed_saves) {
      EXPECT_NE(base::Message(why).find(std::strerror(error)), std::string::npos) << why;
      EXPECT_NE(base::Message(why).find("ckpts/tiny"), std::string::npos) << why;
    }
    EXPECT_EQ(ComplaintOfGoingOn(Disk("disk"), kNewest, seen.steps), "");
  }
}

}  // namespace
}  // namespace mt::train
