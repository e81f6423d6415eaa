// What a thread has collected between ncclGroupStart and ncclGroupEnd.
#pragma once

#include <memory>
#include <vector>

#include "tests/worker/comm/nccl_stand_in/communicator.h"

namespace mt::comm::stand_in {

// Used by one thread. Outside of Start and End a call is a group of its own.
class Fused {
 public:
  // The calling thread's.
  static Fused& OfThread();

  void Start() { ++depth_; }
  // Enqueues what was collected: per communicator its collectives in order, then all its messages
  // as one call. Returns the first error.
  NcclResult End();

  NcclResult Add(Communicator* comm, const Queue* queue, const Collective& call);
  NcclResult Add(Communicator* comm, const Queue* queue, const Message& message);
  // An error that End has to give too.
  NcclResult Refuse(NcclResult why);

 private:
  struct Part {
    Communicator* comm = nullptr;
    const Queue* queue = nullptr;
    std::vector<Collective> collectives;
    std::vector<Message> messages;
  };
  // Null: the communicator has calls on another queue, which the stand-in does not do.
  Part* PartOf(Communicator* comm, const Queue* queue);

  int depth_ = 0;
  NcclResult error_ = NcclResult::kSuccess;
  std::vector<Part> parts_;
};

}  // namespace mt::comm::stand_in
