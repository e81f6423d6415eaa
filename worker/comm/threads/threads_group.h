// A member of a group whose ranks are threads. Collectives read the others' buffers in place
// between two meetings; sums follow reduce.h's order, the one that the rings of worker/comm/gloo
// have, so that both give the same bits.
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
  // All members' calls are the same, or an error that names one that differs.
  Status Compare(const Call& call) const;
  // The first reading phase: what this member computes or copies from the others' inputs.
  void ReadInputs(const Call& call);
  // All members' inputs, moved on by `offset` bytes, in rank order.
  std::vector<const void*> Inputs(int64_t offset) const;
  // The second reading phase of an all-reduce: everyone's reduced shard.
  void CollectShards(const Call& call);

  const std::shared_ptr<ThreadsRoom> room_;
};

}  // namespace mt::comm
