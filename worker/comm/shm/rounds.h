// Collectives proceed in rounds: each member writes what the others need into its slot, all meet,
// and each reads the others' slots. A member has two slots, for even and odd rounds. It may write
// into a slot again without asking: who has arrived at a round has finished reading the one before,
// and everybody has met everybody there. So a round costs one meeting.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/comm/shm/segment.h"
#include "worker/comm/shm/waits.h"

namespace mt::comm {

// Used by the group's thread.
class ShmRounds {
 public:
  ShmRounds(GroupSpec spec, ShmSegment* segment, ShmWaits* waits);

  // This member's slot of the round that comes, [kSlotBytes].
  std::byte* Mine() const {
    return segment_->slot(spec_.my_index, static_cast<int64_t>(num_met_ % 2));
  }
  // Arrives at the round and blocks until all have, with the errors of ShmWaits::Await;
  // kFailedPrecondition if a member is in another call, or in another collective of that kind
  // (`sequence`). Nothing of the others' slots may be read before.
  Status Meet(const ProcessGroup::Call& call, uint64_t sequence, base::MonotonicTime deadline);
  // A member's slot of the last round that was met.
  const std::byte* Of(int member) const {
    return segment_->slot(member, static_cast<int64_t>((num_met_ + 1) % 2));
  }

 private:
  int size() const { return static_cast<int>(spec_.members.size()); }

  const GroupSpec spec_;
  ShmSegment* const segment_;
  ShmWaits* const waits_;
  uint64_t num_met_ = 0;
};

}  // namespace mt::comm
