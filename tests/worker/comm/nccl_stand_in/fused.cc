// The rules of NCCL's groups: the outermost end counts, and nothing runs after an error.
#include "tests/worker/comm/nccl_stand_in/fused.h"

#include <utility>

namespace mt::comm::stand_in {

Fused& Fused::OfThread() {
  thread_local Fused fused;
  return fused;
}

Fused::Part* Fused::PartOf(Communicator* comm, const Queue* queue) {
  for (Part& part : parts_) {
    if (part.comm == comm) return part.queue == queue ? &part : nullptr;
  }
  parts_.push_back({.comm = comm, .queue = queue});
  return &parts_.back();
}

NcclResult Fused::Refuse(NcclResult why) {
  if (depth_ > 0 && error_ == NcclResult::kSuccess) error_ = why;
  return why;
}

NcclResult Fused::Add(Communicator* comm, const Queue* queue, const Collective& call) {
  if (call.header.count == 0) return NcclResult::kSuccess;  // NCCL discards these: no meeting
  if (depth_ == 0) return comm->Enqueue(*queue, call);
  Part* const part = PartOf(comm, queue);
  if (part == nullptr) return Refuse(NcclResult::kInvalidUsage);
  part->collectives.push_back(call);
  return NcclResult::kSuccess;
}

NcclResult Fused::Add(Communicator* comm, const Queue* queue, const Message& message) {
  if (depth_ == 0) return comm->Enqueue(*queue, std::vector<Message>{message});
  Part* const part = PartOf(comm, queue);
  if (part == nullptr) return Refuse(NcclResult::kInvalidUsage);
  part->messages.push_back(message);
  return NcclResult::kSuccess;
}

NcclResult Fused::End() {
  if (depth_ == 0) return NcclResult::kInvalidUsage;
  if (--depth_ > 0) return NcclResult::kSuccess;
  const std::vector<Part> parts = std::exchange(parts_, {});
  NcclResult result = std::exchange(error_, NcclResult::kSuccess);
  for (const Part& part : parts) {
    for (const Collective& call : part.collectives) {
      if (result == NcclResult::kSuccess) result = part.comm->Enqueue(*part.queue, call);
    }
    if (result == NcclResult::kSuccess && !part.messages.empty()) {
      result = part.comm->Enqueue(*part.queue, part.messages);
    }
  }
  return result;
}

}  // namespace mt::comm::stand_in
