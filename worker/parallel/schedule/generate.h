// Makes schedules: GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2021, section 2.2.1),
// interleaved 1F1B (section 2.2.2, in Megatron-LM's order). Pure; thread-safe.
#pragma once

#include "common/base/status.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::schedule {

struct Request {
  Kind kind = Kind::kOneFOneB;
  int stages = 1;
  int microbatches = 1;
  int chunks = 1;  // v; above 1 for kInterleaved only
  // Interleaved: N microbatches go through a chunk before the next chunk's turn; 0: stages. A whole
  // number of groups must make the batch.
  int group = 0;
};

// InvalidArgument where a number is below 1, where chunks does not fit the kind, where group is
// below stages, or where the microbatches are no multiple of it (the nearest that would be are
// named).
StatusOr<Schedule> Generate(const Request& request);

// The forwards of any number of microbatches, for evaluation: each passes all chunks of
// `training`'s stages, in that schedule's slots. Chunks take turns after p microbatches, so that an
// output is used about when it comes.
Schedule ForwardOnly(const Schedule& training, int microbatches);

// (microbatch, chunk) of the n-th forward on every stage of an interleaved schedule, for any number
// of microbatches: the last group may be short. The backward order is the same with the chunks
// mirrored.
struct Turn {
  int microbatch = 0;
  int chunk = 0;
  bool operator==(const Turn&) const = default;
};
std::vector<Turn> InterleavedOrder(int microbatches, int chunks, int group);

}  // namespace mt::schedule
