// Runs a schedule on paper: every stage works through its list, every link is an in-order queue
// beside the computation. A transfer starts when its sender has produced it, all earlier ones on
// that link are done and the receiver's slot is free; a computation waits for its input, and for
// its slot's previous gradient to have left. Time is counted in whole ticks, so results are exact.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::schedule {

struct Costs {
  int64_t forward = 1;   // ticks of one chunk's forward
  int64_t backward = 2;  // ticks of one chunk's backward
  int64_t transfer = 0;  // ticks of one transfer
};

struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> actions;  // as Schedule::actions
  int64_t end = 0;                         // of the last action of all stages
  // Ticks in which a stage that waits could have worked, of the stage that waits longest: the
  // "bubble". Its share is bubble / (end - bubble).
  int64_t bubble = 0;
};

// FailedPrecondition where the stages wait for each other: names each stage that is stuck and what
// it waits for.
StatusOr<Timeline> Simulate(const Schedule& schedule, const Costs& costs);

}  // namespace mt::schedule
