// An all-reduce takes two reading phases: each member reduces its shard into its desk, then copies
// all shards. Other collectives take one. The last meeting ensures that nobody reads any more when
// a member returns.
#include "worker/comm/threads/threads_group.h"

#include <utility>

#include "worker/comm/bytes.h"
#include "worker/comm/reduce.h"

namespace mt::comm {
ThreadsGroup::ThreadsGroup(GroupSpec spec, CommConfig config, std::shared_ptr<ThreadsRoom> room)
    : ProcessGroup(std::move(spec), std::move(config)), room_(std::move(room)) {}

ThreadsGroup::~ThreadsGroup() { room_->Leave(rank()); }

Status ThreadsGroup::DoCall(kernels::Stream& /*stream*/, const Call& call,
                            base::MonotonicTime deadline) {
  if (call.op == CommOp::kSend) {
    const auto* data = static_cast<const std::byte*>(call.in);
    return room_->Post(
        {.from = rank(), .to = call.peer, .edge = call.edge},
        {.dtype = call.dtype, .count = call.count, .bytes = {data, data + call.Bytes()}}, deadline);
  }
  if (call.op == CommOp::kRecv) {
    ASSIGN_OR_RETURN(const Letter letter,
                     room_->Take({.from = call.peer, .to = rank(), .edge = call.edge}, deadline));
    if (letter.count != call.count || letter.dtype != call.dtype) {
      return base::FailedPrecondition("the sender's message is {} {}; both ends must agree",
                                      letter.count, kernels::Name(letter.dtype));
    }
    CopyBytes(call.out, letter.bytes.data(), call.Bytes());
    return OkStatus();
  }
  Status status = Collective(call, deadline);
  if (!status.ok()) {
    // No reading phase starts after Break; wait for those that read this member's memory.
    room_->Break(rank());
    room_->AwaitReaders();
  }
  return status;
}

Status ThreadsGroup::Collective(const Call& call, base::MonotonicTime deadline) {
  room_->desk(rank()).call = call;
  RETURN_IF_ERROR(room_->Meet(/*reading=*/true, deadline));
  const Status same = Compare(call);
  if (same.ok() && call.count > 0) ReadInputs(call);
  room_->EndReading();
  RETURN_IF_ERROR(same);
  if (call.op == CommOp::kAllReduce) {
    RETURN_IF_ERROR(room_->Meet(/*reading=*/true, deadline));
    CollectShards(call);
    room_->EndReading();
  }
  return room_->Meet(/*reading=*/false, deadline);
}

Status ThreadsGroup::Compare(const Call& call) const {
  for (int peer = 0; peer < size(); ++peer) {
    const Call& other = room_->desk(peer).call;
    if (call.Matches(other)) continue;
    return base::FailedPrecondition("{} calls {}; all ranks must make the same calls",
                                    DescribePeer(peer), other.Describe());
  }
  return OkStatus();
}

std::vector<const void*> ThreadsGroup::Inputs(int64_t offset) const {
  std::vector<const void*> inputs;
  inputs.reserve(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    inputs.push_back(static_cast<const std::byte*>(room_->desk(peer).call.in) + offset);
  }
  return inputs;
}

void ThreadsGroup::ReadInputs(const Call& call) {
  const ReduceType type{.dtype = call.dtype, .op = call.reduce};
  switch (call.op) {
    case CommOp::kAllReduce: {
      const ShardCut cut{.count = call.count, .num_shards = size()};
      const int64_t element = kernels::SizeOf(call.dtype);
      std::vector<std::byte>& shard = room_->desk(rank()).shard;
      shard.resize(static_cast<size_t>(cut.CountOf(rank()) * element));
      ReduceInOrder(Inputs(cut.Begin(rank()) * element), rank(), shard.data(), cut.CountOf(rank()),
                    type);
      break;
    }
    case CommOp::kReduceScatter:
      ReduceInOrder(Inputs(rank() * call.Bytes()), rank(), call.out, call.count, type);
      break;
    case CommOp::kAllGather:
      for (int peer = 0; peer < size(); ++peer) {
        CopyBytes(At(call.out, peer * call.Bytes()), room_->desk(peer).call.in, call.Bytes());
      }
      break;
    case CommOp::kAllToAll: {
      const std::vector<const void*> inputs = Inputs(rank() * call.Bytes());
      for (int peer = 0; peer < size(); ++peer) {
        CopyBytes(At(call.out, peer * call.Bytes()), inputs[static_cast<size_t>(peer)],
                  call.Bytes());
      }
      break;
    }
    case CommOp::kBroadcast:
      CopyBytes(call.out, room_->desk(call.peer).call.in, call.Bytes());
      break;
    case CommOp::kBarrier:
    case CommOp::kSend:
    case CommOp::kRecv:
      break;
  }
}

void ThreadsGroup::CollectShards(const Call& call) {
  const ShardCut cut{.count = call.count, .num_shards = size()};
  const int64_t element = kernels::SizeOf(call.dtype);
  for (int peer = 0; peer < size(); ++peer) {
    CopyBytes(At(call.out, cut.Begin(peer) * element), room_->desk(peer).shard.data(),
              cut.CountOf(peer) * element);
  }
}

}  // namespace mt::comm
