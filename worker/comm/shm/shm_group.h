// A process group whose members share memory, as processes of one host. Collectives go in rounds
// (rounds.h), piece by piece; messages through the mailbox. Sums follow reduce.h's order, so they
// have the bits of every other implementation.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/comm/reduce.h"
#include "worker/comm/shm/mailbox.h"
#include "worker/comm/shm/rounds.h"
#include "worker/comm/shm/segment.h"
#include "worker/comm/shm/waits.h"

namespace mt::comm {

class ShmGroup final : public ProcessGroup {
 public:
  // Every member of `spec` has its seat in the segment. `look_at_seats`: how often a wait looks
  // whether all are still there.
  ShmGroup(GroupSpec spec, CommConfig config, std::unique_ptr<ShmSegment> segment,
           std::chrono::milliseconds look_at_seats = kLookAtSeats);
  ~ShmGroup() override;

 private:
  Status DoCall(kernels::Stream& stream, const Call& call, base::MonotonicTime deadline) override;
  void OnBroken() override { waits_.Break(); }

  Status Collective(const Call& call, base::MonotonicTime deadline);
  // All terms in one round, each member adds all of them.
  Status SmallAllReduce(const Call& call, base::MonotonicTime deadline);
  // Piece by piece: each member adds its own shard's, the others read it in the next round.
  Status LargeAllReduce(const Call& call, base::MonotonicTime deadline);
  Status ReduceShards(const Call& call, base::MonotonicTime deadline);
  Status GatherShards(const Call& call, base::MonotonicTime deadline);
  Status SendFromRoot(const Call& call, base::MonotonicTime deadline);
  Status ExchangeShards(const Call& call, base::MonotonicTime deadline);

  Status Meet(const Call& call, base::MonotonicTime deadline) {
    return rounds_.Meet(call, num_collectives_, deadline);
  }
  // The terms of this member's shard: its own, and the others' at `offset` of their slots.
  std::vector<const void*> Terms(const void* own, int64_t offset) const;

  const std::unique_ptr<ShmSegment> segment_;
  ShmWaits waits_;
  ShmRounds rounds_;
  ShmMailbox mailbox_;
  uint64_t num_collectives_ = 0;
};

}  // namespace mt::comm
