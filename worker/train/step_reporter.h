// What a rank counts and rank 0 reports of its steps: times once the device has ended them, records
// once their outcome was read, and the peaks of memory.
#pragma once

#include <cstdint>

#include "common/base/clock.h"
#include "worker/engine/engine.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/train/observer.h"
#include "worker/train/step_cursor.h"
#include "worker/train/step_report.h"

namespace mt::train {

// One thread.
class StepReporter {
 public:
  // The pointers must outlive the reporter.
  struct Args {
    engine::Engine* engine = nullptr;
    const parallel::RankGroups* groups = nullptr;
    TrainObserver* observer = nullptr;
    const base::Clock* clock = nullptr;
    StepReportConfig config;  // without the bytes of memory
    int64_t seq_length = 0;
  };
  explicit StepReporter(const Args& args);

  // `step` was enqueued, which took the host this long.
  void Enqueued(int64_t step, double launch_seconds);
  // Adds the steps that the device has ended to the counters and moves the cursor past them.
  void CountEnded(StepCursor* cursor);
  // Rank 0: the record of a step whose times are known.
  void Report(int64_t step, const engine::StepOutcome& outcome);
  // Raises the reported peaks to the bytes that are taken now.
  void MeasureMemory();
  // Time of the steps that were counted for which training stood still for saves.
  double SaveSeconds() const;
  // Peaks of this rank, by kind.
  const memory::BytesByKind& memory_bytes() const { return counters_.memory_bytes; }

 private:
  const Args args_;
  StepReportConfig config_;
  RankCounters counters_;
  RecentSteps<StepTimes> times_;
};

}  // namespace mt::train
