// A small run of two ranks that saves beside training, with a tag that moves, evaluations and
// pruning, whose every file operation below the checkpoint root is logged; and runs that go on from
// what is left of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/common/base/crash_log.h"
#include "tests/common/base/crash_points.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/resume_base.h"

namespace mt::train {

// The kind of file or folder at a path below the root of the log: "shard", "new manifest" for a
// temporary file that gets that name, "unfinished folder".
std::string RoleOfPath(std::string_view path);

// What the run under the log was told, and its marks in the log: "saved 8", "tagged 12", and the
// failpoints of rank 0's saves.
struct LoggedRun {
  std::vector<RankOutcome> outcomes;
  std::vector<crash::Operation> operations;
  crash::Tree before;
  std::vector<std::string> names;  // of the operations

  // The last operation of each name. Marks have no part in it.
  std::map<std::string, size_t> LastByName() const;
};

// The last step of the run, and the steps that are saved; the first and the third of them are
// tagged "best", those that are due are evaluated.
constexpr int64_t kLastStep = 26;
const std::vector<int64_t>& SavedSteps();
// Where the checkpoints lie.
std::string DirectoryOn(const std::string& disk);

class CrashTest : public TrainTest {
 protected:
  CrashTest();
  ~CrashTest() override;

  // The run, with its checkpoints below `disk`, which is made anew. The log records all of it, and
  // `faults` may be empty.
  LoggedRun RunLogged(const std::string& disk, const crash::CrashLog::Faults& faults);
  // A run that goes on from what is below `disk`, for two steps more, and saves; under a log where
  // there are faults.
  std::vector<RankOutcome> GoOn(const std::string& disk,
                                const crash::CrashLog::Faults& faults = {});
  // The first damage in any complete checkpoint below `disk`; empty: each is whole.
  static std::string DamageOn(const std::string& disk);
  // Damage, or what is wrong with a run that goes on from what is below `disk`; empty: it goes on
  // from the step `at_least` or a later one, its steps are those of the run that went straight on,
  // to the bit, and it saves and leaves nothing unfinished.
  std::string ComplaintOfGoingOn(const std::string& disk, int64_t at_least,
                                 const std::vector<StepRecord>& straight);

  std::string Disk(std::string_view name) const;

  // What runs that go on expect to find.
  std::optional<checkpoint::ResumeBase> base_;
  // Called with each step that the run under the log tells as saved; may be empty.
  std::function<void(int64_t step)> told_saved_;

 private:
  std::vector<RankOutcome> RunOn(const std::string& disk, const std::vector<std::string>& more,
                                 CommandSource* commands,
                                 const std::function<void(int rank, TrainArgs* args)>& adjust);

  std::string top_;  // in memory where that can be: what is durable is the log's to say
};

}  // namespace mt::train
