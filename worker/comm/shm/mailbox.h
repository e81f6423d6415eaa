// Point-to-point messages between two members on an edge. The sender copies a message into its
// outbox and puts a letter into the edge's ring; the receiver compares the letter with its own call
// before it copies the message out.
#pragma once

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/comm/shm/outbox.h"
#include "worker/comm/shm/segment.h"
#include "worker/comm/shm/waits.h"

namespace mt::comm {

// Used by the group's thread. Errors are those of ShmWaits::Await, kResourceExhausted where no
// memory can be mapped, and kFailedPrecondition where the two ends' calls differ.
class ShmMailbox {
 public:
  ShmMailbox(int my_index, ShmSegment* segment, ShmWaits* waits)
      : my_index_(my_index), segment_(segment), waits_(waits), outbox_(segment, my_index) {}

  // Returns once the message is copied; blocks while the edge's window is full.
  Status Send(const ProcessGroup::Call& call, base::MonotonicTime deadline);
  // Blocks until the message is in call.out.
  Status Recv(const ProcessGroup::Call& call, base::MonotonicTime deadline);

 private:
  const int my_index_;
  ShmSegment* const segment_;
  ShmWaits* const waits_;
  ShmOutbox outbox_;
};

}  // namespace mt::comm
