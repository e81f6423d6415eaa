// Generates schedules: GPipe (Huang et al. 2019, section 2.3), 1F1B (Narayanan et al. 2021, section
// 2.2.1) and interleaved 1F1B (section 2.2.2, in Megatron-LM's order). Pure; thread-safe.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// The parameters of a schedule.
struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int stages = 1;
  int microbatches = 1;
  int chunks = 1;  // v, model chunks per stage; above 1 for kInterleaved only
  // kInterleaved: the number of microbatches that run through a chunk before the next chunk's turn
  // (Megatron's microbatch group size per virtual pipeline stage); 0: `stages`. `microbatches` must
  // be a multiple of it.
  int group = 0;
  std::vector<int> hand_on;  // Schedule::hand_on
};

// Generates the schedule. kInvalidArgument if a number is below 1, chunks do not fit the kind, the
// group is smaller than `stages`, or the microbatches are no multiple of the group (the nearest
// valid numbers are named).
StatusOr<Schedule> GenerateSchedule(const ScheduleRequest& request);

// The forward passes of any number of microbatches, for evaluation: each passes all chunks, in the
// slots of the `training` schedule. Chunks take turns after p microbatches, so that an output is
// used soon after it arrives.
Schedule ForwardOnly(const Schedule& training, int microbatches);

// InterleavedOrder gives (microbatch, chunk) of the n-th forward on every stage of an interleaved
// schedule. Any number of microbatches is allowed; the last group may be shorter. Backwards have
// the same order with the chunks mirrored.
struct InterleavedTurn {
  int microbatch = 0;
  int chunk = 0;
  bool operator==(const InterleavedTurn&) const = default;
};
std::vector<InterleavedTurn> InterleavedOrder(int microbatches, int chunks, int group);

}  // namespace mt::parallel
