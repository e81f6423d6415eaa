// A process group whose ranks are threads. Collectives read the other members' buffers in place
// between two meetings. Sums follow reduce.h's order, which is that of the rings in
// worker/comm/gloo, so both implementations give the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/comm/threads/room.h"

namespace mt::comm {

class ThreadsGroup final : public ProcessGroup {
 public:
  ThreadsGroup(GroupSpec spec, CommConfig config, std::shared_ptr<ThreadsRoom> room);
  ~ThreadsGroup() override;

 private:
  Status DoCall(kernels::Stream& stream, const Call& call, base::MonotonicTime deadline) override;
  void OnBroken() override { room_->Break(rank()); }

  Status Collective(const Call& call, base::MonotonicTime deadline);
  // OK if all members make the same call, else kFailedPrecondition with one that differs.
  Status Compare(const Call& call) const;
  // First reading phase: computes or copies this member's result from the others' inputs.
  void ReadInputs(const Call& call);
  // Pointers to all members' inputs plus `offset` bytes, in rank order.
  std::vector<const void*> Inputs(int64_t offset) const;
  // Second reading phase, of an all-reduce only: copies everyone's reduced shard.
  void CollectShards(const Call& call);

  const std::shared_ptr<ThreadsRoom> room_;
};

}  // namespace mt::comm
