// A power loss at each named point of a run that saves beside training: what was not synced is
// gone, or there, or torn, and the next run goes on from the newest complete checkpoint, to the
// bit. And the test of that test: each sync of the path is ignored by name, which breaks a promise.
// With MT_LONG_TESTS after every operation instead of one of each name.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/common/base/crash_replay.h"
#include "tests/worker/train/saves/crash_promises.h"
#include "tests/worker/train/saves/crash_rig.h"

namespace mt::train {
namespace {

using Kind = crash::Operation::Kind;

bool Long() { return std::getenv("MT_LONG_TESTS") != nullptr; }

// Names whose absence would mean that the run does not go the whole path any more.
constexpr const char* kExpectedPoints[] = {
    "make checkpoint root",
    "sync disk after make checkpoint root",
    "make directory",
    "sync checkpoint root after make directory",
    "create fence lock",
    "create new fence",
    "write new fence",
    "sync new fence",
    "rename fence",
    "sync directory after rename fence",
    "create new run.json",
    "write new run.json",
    "sync new run.json",
    "rename run.json",
    "sync directory after rename run.json",
    "make unfinished folder",
    "create shard",
    "write shard, first",
    "write shard, middle",
    "write shard, last",
    "sync shard",
    "create new rank manifest",
    "write new rank manifest",
    "sync new rank manifest",
    "rename rank manifest",
    "sync unfinished folder after rename rank manifest",
    "create new manifest",
    "write new manifest",
    "sync new manifest",
    "rename manifest",
    "sync unfinished folder after rename manifest",
    "rename checkpoint",
    "sync directory after rename checkpoint",
    "create new evaluation",
    "write new evaluation",
    "sync new evaluation",
    "rename evaluation",
    "sync checkpoint after rename evaluation",
    "create new label",
    "write new label",
    "sync new label",
    "rename label",
    "sync checkpoint after rename label",
    "remove label",
    "sync checkpoint after remove label",
    "remove manifest",
    "sync checkpoint after remove manifest",
    "remove shard",
    "remove rank manifest",
    "remove evaluation",
    "remove checkpoint",
};

class CrashPointsTest : public CrashTest {
 protected:
  // The run of all these tests.
  const LoggedRun& Logged() {
    if (run_.operations.empty()) {
      run_ = RunLogged(Disk("disk"), nullptr);
      ExpectClean(run_.outcomes, kLastStep);
    }
    return run_;
  }
  // One operation of each name, the marks too; all with MT_LONG_TESTS.
  std::set<size_t> Points() {
    std::set<size_t> points;
    for (const auto& [name, at] : Logged().LastByName()) points.insert(at);
    for (size_t i = 0; i < Logged().operations.size(); ++i) {
      if (Long() || Logged().operations[i].kind == Kind::kMark) points.insert(i);
    }
    return points;
  }

  LoggedRun run_;
};

TEST_F(CrashPointsTest, TheRunGoesTheWholePath) {
  const auto points = Logged().LastByName();
  for (const char* name : kExpectedPoints) EXPECT_TRUE(points.contains(name)) << name;
  EXPECT_GE(std::size(kExpectedPoints), 24U);
  std::set<int64_t> saved;
  for (const CheckpointRecord& record : Logged().outcomes[0].seen.saves) saved.insert(record.step);
  EXPECT_EQ(saved, std::set<int64_t>(SavedSteps().begin(), SavedSteps().end()));
  if (!Long()) return;
  for (const auto& [name, at] : points) std::cout << "point: " << name << "\n";
}

TEST_F(CrashPointsTest, NoPromiseIsBrokenByACrash) {
  CrashPromises promises(Logged());
  EXPECT_EQ(promises.FirstBroken(Points(), Disk("left")), "");
  EXPECT_GT(promises.num_outcomes(), 120U);
  for (const int64_t step : SavedSteps()) {
    EXPECT_TRUE(promises.was_found(step)) << step;
    EXPECT_TRUE(promises.was_missing(step)) << step;
  }
  EXPECT_EQ(promises.surely(), (std::set<int64_t>{12, 16, 24}));
}

TEST_F(CrashPointsTest, EverySyncIsNeeded) {
  std::set<std::string> sites;
  for (size_t i = 0; i < Logged().operations.size(); ++i) {
    if (Logged().operations[i].kind == Kind::kSync) sites.insert(Logged().names[i]);
  }
  EXPECT_GE(sites.size(), 12U);
  for (const std::string& site : sites) {
    CrashPromises promises(Logged(), site);
    const std::string broken = promises.FirstBroken(Points(), Disk("left"));
    EXPECT_NE(broken, "") << "nothing needs: " << site;
    if (Long())
      std::cout << "without " << site << ": " << broken.substr(0, broken.find('\n')) << "\n";
  }
}

TEST_F(CrashPointsTest, TheNextRunGoesOnFromTheNewestToTheBit) {
  const std::vector<StepRecord>& straight = Logged().outcomes[0].seen.steps;
  ASSERT_EQ(straight.size(), static_cast<size_t>(kLastStep));
  const std::set<size_t> points = Points();
  crash::Replay replay(Logged().before);
  std::set<crash::Tree> done;
  int64_t newest = 0;
  for (size_t at = 0; at < Logged().operations.size(); ++at) {
    const crash::Operation& operation = Logged().operations[at];
    replay.Add(operation);
    if (operation.kind == Kind::kMark && operation.path.starts_with("saved "))
      newest = std::stoll(operation.path.substr(6));
    if (!points.contains(at)) continue;
    for (const crash::Unsynced unsynced :
         {crash::Unsynced::kDropped, crash::Unsynced::kKept, crash::Unsynced::kTorn}) {
      const crash::Tree left = replay.Left(unsynced);
      if (!done.insert(left).second) continue;
      crash::WriteTree(left, Disk("left"));
      EXPECT_EQ(ComplaintOfGoingOn(Disk("left"), newest, straight), "")
          << Logged().names[at] << ", outcome " << static_cast<int>(unsynced) << "\n"
          << crash::Describe(left);
    }
  }
  EXPECT_GT(done.size(), 50U);
}

}  // namespace
}  // namespace mt::train
