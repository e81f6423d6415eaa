// Proves that a schedule can be run: everything is computed once and in order, slots are never
// shared, every link is sent and received in the same order, and the stages never wait for each
// other in a circle. Pure; thread-safe.
#pragma once

#include "common/base/status.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::schedule {

// OK, or FailedPrecondition with the stage and the action at fault. Checked:
//   1. each (microbatch, chunk) has one forward and then one backward (in a forward-only pass:
//   none)
//      on its stage; in one chunk both in rising order of microbatches
//   2. a slot holds one microbatch at a time and lies within Schedule::slots
//   3. what a stage sends over a link is, in this order and for these slots, what the peer receives
//   4. no deadlock, with transfers of no time and of a long one (simulate.h)
Status Check(const Schedule& schedule);

}  // namespace mt::schedule
