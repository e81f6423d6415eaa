// Storage that fails one operation of a run that saves beside training, by name: no space left, an
// I/O error, a file that is seen late, half of a read or a write. The save or the start fails with
// an error that names the file, nothing that was saved is lost, training goes on to the bit, and
// the next save works. With MT_LONG_TESTS each operation fails at its first, its second and its
// last turn.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/saves/crash_promises.h"
#include "tests/worker/train/saves/crash_rig.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::train {
namespace {

using Kind = crash::Operation::Kind;

// Counts the turns of each name, and puts a fault into one of one name.
class OneFault {
 public:
  OneFault(std::string name, int turn, crash::Fault fault)
      : name_(std::move(name)), turn_(turn), fault_(fault), names_(RoleOfPath) {}
  crash::Fault operator()(const crash::Operation& next) {
    const std::string name = names_.Next(next);
    if (name != name_ && !name_.empty()) return {};
    if (++turns_[name] != turn_) return {};
    ++hits_;
    return fault_;
  }
  const std::map<std::string, int>& turns() const { return turns_; }
  int hits() const { return hits_; }

 private:
  const std::string name_;
  const int turn_;
  const crash::Fault fault_;
  crash::OperationNames names_;
  std::map<std::string, int> turns_;
  int hits_ = 0;
};

bool IsLong() { return std::getenv("MT_LONG_TESTS") != nullptr; }

// What an operation of this name is made to do.
std::vector<crash::Fault> FaultsOf(const std::string& name) {
  const auto is = [&name](std::string_view what) { return name.starts_with(what); };
  std::vector<crash::Fault> faults;
  if (is("read ") || is("write ")) faults.push_back({.shortened = true});
  if (is("create ") || is("make ") || is("write ")) faults.push_back({.error = ENOSPC});
  if (is("open ")) faults.push_back({.error = ENOENT});  // seen late
  if (IsLong() || faults.empty() || is("read ") || is("write ")) faults.push_back({.error = EIO});
  return faults;
}

// Whether a fault of this operation must be told as a save that failed.
bool FailsASave(const std::string& name) {
  for (const char* part : {"shard", "rank manifest", "new manifest", "rename manifest",
                           "make unfinished folder", "rename checkpoint"}) {
    if (name.find(part) != std::string::npos && !name.starts_with("remove ")) return true;
  }
  return false;
}

bool FailsALabel(const std::string& name) {
  return name.ends_with("new label") || name.ends_with("rename label");
}

// Whether the text says that this errno came back.
bool Says(const Status& status, int error) {
  return base::Message(status).find(std::strerror(error)) != std::string::npos ||
         (error == ENOENT && (absl::IsNotFound(status) ||
                              base::Message(status).find(" is missing") != std::string::npos));
}

class CrashFaultsTest : public CrashTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    OneFault none("", -1, {});  // of any name: all are counted
    calm_ = RunLogged(Disk("disk"), std::ref(none));
    ExpectClean(calm_.outcomes, kLastStep);
    turns_ = none.turns();
  }
  const std::vector<StepRecord>& straight() const { return calm_.outcomes[0].seen.steps; }

  // The turns of an operation that are tried, of so many.
  static std::set<int> TurnsToTry(int turns) {
    if (!IsLong()) return {(turns + 1) / 2};
    return {1, std::min(turns, 2), turns};
  }

  // The run did not start: every rank has an error, one of them the fault's.
  static void ExpectRefused(const std::vector<RankOutcome>& ranks, const crash::Fault& fault) {
    bool said = false;
    for (const RankOutcome& rank : ranks) {
      EXPECT_FALSE(rank.result.status.ok());
      said = said || Says(rank.result.status, fault.error);
    }
    EXPECT_TRUE(said) << ranks[0].result.status;
  }

  // The run trained to its end in spite of the fault.
  void ExpectTrained(const LoggedRun& run, const std::string& name, const crash::Fault& fault) {
    ExpectClean(run.outcomes, kLastStep);
    const Observed& seen = run.outcomes[0].seen;
    ExpectEqualCurve(seen.steps, straight());
    EXPECT_LE(seen.failed_saves.size(), fault.error != 0 ? 1U : 0U);
    if (fault.error != 0 && FailsASave(name)) {
      EXPECT_EQ(seen.failed_saves.size(), 1U);
    }
    std::set<int64_t> steps(SavedSteps().begin(), SavedSteps().end());
    for (const auto& [step, why] : seen.failed_saves) {
      steps.erase(step);
      EXPECT_TRUE(Says(why, fault.error)) << why;
    }
    std::set<int64_t> saved;
    for (const CheckpointRecord& record : seen.saves) saved.insert(record.step);
    EXPECT_EQ(saved, steps) << "the saves before and after it";
    int failed_commands = 0;
    for (const CommandResult& done : seen.commands_done) failed_commands += done.error.ok() ? 0 : 1;
    if (fault.error != 0 && FailsALabel(name)) {
      EXPECT_EQ(failed_commands, 1);
    }
  }

  LoggedRun calm_;
  std::map<std::string, int> turns_;
};

TEST_F(CrashFaultsTest, OneOperationThatFailsLosesNothing) {
  int trials = 0;
  std::set<std::string> names;
  for (const auto& [name, turns] : turns_) {
    if (name.starts_with("at ")) continue;
    for (const crash::Fault& fault : FaultsOf(name)) {
      for (const int turn : TurnsToTry(turns)) {
        SCOPED_TRACE(fmt::format("{}, turn {} of {}: {}", name, turn, turns,
                                 fault.shortened ? "short" : std::strerror(fault.error)));
        OneFault once(name, turn, fault);
        const LoggedRun run = RunLogged(Disk("disk"), std::ref(once));
        EXPECT_EQ(once.hits(), 1);
        ++trials;
        names.insert(name);
        int64_t newest = 0;
        if (run.outcomes[0].created) {
          ExpectTrained(run, name, fault);
          newest = run.outcomes[0].seen.saves.back().step;
        } else {
          ExpectRefused(run.outcomes, fault);
        }
        EXPECT_EQ(ComplaintOfGoingOn(Disk("disk"), newest, straight()), "");
      }
    }
  }
  EXPECT_GE(names.size(), 24U);
  EXPECT_GE(trials, 40);
}

// A start whose storage fails says so: it neither starts cold nor takes an older one, and the next
// start goes on from the newest.
TEST_F(CrashFaultsTest, AStartThatCannotReadStartsNowhere) {
  const auto copy = [this] {
    std::filesystem::remove_all(Disk("again"));
    std::filesystem::copy(Disk("disk"), Disk("again"), std::filesystem::copy_options::recursive);
  };
  copy();
  OneFault none("", -1, {});
  ExpectClean(GoOn(Disk("again"), std::ref(none)), 26);
  int refused = 0;
  for (const auto& [name, turns] : none.turns()) {
    if (!name.starts_with("open ") && !name.starts_with("read ")) continue;
    for (const crash::Fault& fault : FaultsOf(name)) {
      for (const int turn : TurnsToTry(turns)) {
        SCOPED_TRACE(fmt::format("{}, turn {} of {}: {}", name, turn, turns,
                                 fault.shortened ? "short" : std::strerror(fault.error)));
        copy();
        OneFault once(name, turn, fault);
        const std::vector<RankOutcome> ranks = GoOn(Disk("again"), std::ref(once));
        EXPECT_EQ(once.hits(), 1);
        if (ranks[0].created) {
          ExpectClean(ranks, 26);
          EXPECT_EQ(ranks[0].seen.infos.at(0).resumed_from_step, 24);
          continue;
        }
        ++refused;
        EXPECT_FALSE(fault.shortened);
        ExpectRefused(ranks, fault);
        EXPECT_EQ(ComplaintOfGoingOn(Disk("again"), 24, straight()), "");
      }
    }
  }
  EXPECT_GE(refused, 3);
}

}  // namespace
}  // namespace mt::train
