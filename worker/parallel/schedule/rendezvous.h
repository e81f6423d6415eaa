// Simulates a schedule over links without buffers: a transfer happens when its sender has produced
// the data and its receiver has begun to receive, as messages of NCCL do that are larger than its
// buffers. Receives begin some actions before the one that needs them. Pure; thread-safe.
#pragma once

#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// Whether every stage comes to its end if receives begin `ahead` actions (from 1) before the one
// that needs them, or as soon after that as their slot is free, and each link transfers in order
// beside the computation.
bool EndsByRendezvous(const Schedule& schedule, int ahead);

// The smallest `ahead` by which the schedule ends: 1, but for interleaved schedules of large groups
// or with chunks without layers. CHECKs that there is one, which there is for every schedule that
// CheckSchedule accepts.
int ReceivesAhead(const Schedule& schedule);

}  // namespace mt::parallel
