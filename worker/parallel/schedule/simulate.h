// Simulates a schedule: every stage works through its list, and every link is an in-order queue
// that transfers while stages compute. A transfer starts when its data is produced, all earlier
// transfers on the link are done and the receiver's slot is free. A computation waits for its
// input, and until its slot's previous gradient has been sent. Time is counted in whole ticks, so
// results are exact. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// Durations in ticks.
struct ScheduleCosts {
  int64_t forward = 1;   // of one chunk
  int64_t backward = 2;  // of one chunk
  int64_t transfer = 0;  // of one tensor
};

// A half-open interval of ticks.
struct ScheduleSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

// The result of a simulation.
struct Timeline {
  std::vector<std::vector<ScheduleSpan>> actions;  // [stage], parallel to Schedule::actions
  int64_t end = 0;                                 // end of the last action
  // The bubble: idle ticks of the stage that idles longest. Relative to the work it is bubble /
  // (end - bubble).
  int64_t bubble = 0;
};

// kFailedPrecondition if stages wait for each other; the message names each stage that is stuck and
// its next action.
StatusOr<Timeline> SimulateSchedule(const Schedule& schedule, const ScheduleCosts& costs);

}  // namespace mt::parallel
