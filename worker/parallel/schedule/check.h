// Proves that a schedule can be executed: everything is computed once and in order, slots are never
// shared, both ends of every link agree on the order, and stages never wait for each other in a
// circle. Pure; thread-safe.
#pragma once

#include "common/base/status.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// OK, or kFailedPrecondition with the stage and the action at fault. It is checked that
//   1. each (microbatch, chunk) has one forward and then one backward on its stage (none in a
//      forward-only pass), and within a chunk both run in ascending order of microbatches;
//   2. a slot holds one microbatch at a time and lies within Schedule::slots;
//   3. both ends of a link agree on the order of transfers and on the receiving slots;
//   4. there is no deadlock, neither with instantaneous transfers nor with slow ones (simulate.h).
Status CheckSchedule(const Schedule& schedule);

}  // namespace mt::parallel
