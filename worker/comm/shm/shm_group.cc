// A member's own data never passes through its slot unless others need it.
#include "worker/comm/shm/shm_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/math.h"

namespace mt::comm {
namespace {

// Up to this many bytes, for all peers together, every member adds all terms of an all-reduce: that
// is more work than to share it, but one meeting instead of two.
constexpr int64_t kSmallBytes = kInputBytes;

void CopyPart(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

std::byte* Part(void* data, int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }
const std::byte* Part(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

// Shards that are exchanged in pieces of equal size, the last ones shorter or empty.
struct PieceCut {
  ShardCut cut;
  int64_t element = 1;  // bytes
  int64_t size = 1;     // elements

  // `bytes`: room for one piece.
  PieceCut(ShardCut shard_cut, int64_t element_bytes, int64_t bytes)
      : cut(shard_cut), element(element_bytes), size(bytes / element_bytes) {}

  // At least one: members meet even over nothing.
  int64_t Num() const { return std::max<int64_t>(1, base::CeilDiv(cut.Size(), size)); }
  int64_t Bytes() const { return size * element; }
  int64_t Offset(int shard, int64_t piece) const {
    return (cut.Begin(shard) + piece * size) * element;
  }
  int64_t Count(int shard, int64_t piece) const {
    return std::clamp(cut.CountOf(shard) - piece * size, int64_t{0}, size);
  }
  int64_t BytesOf(int shard, int64_t piece) const { return Count(shard, piece) * element; }
};

}  // namespace

ShmGroup::ShmGroup(GroupSpec spec, CommConfig config, std::unique_ptr<ShmSegment> segment,
                   std::chrono::milliseconds look_at_seats)
    : ProcessGroup(spec, std::move(config)),
      segment_(std::move(segment)),
      waits_(spec, segment_.get(), look_at_seats),
      rounds_(spec, segment_.get(), &waits_),
      mailbox_(spec.my_index, segment_.get(), &waits_) {}

ShmGroup::~ShmGroup() { waits_.Leave(); }

Status ShmGroup::DoCall(kernels::Stream& /*stream*/, const Call& call,
                        base::MonotonicTime deadline) {
  if (call.op == CommOp::kSend) return mailbox_.Send(call, deadline);
  if (call.op == CommOp::kRecv) return mailbox_.Recv(call, deadline);
  Status status = Collective(call, deadline);
  ++num_collectives_;
  return status;
}

Status ShmGroup::Collective(const Call& call, base::MonotonicTime deadline) {
  if (call.count == 0) return Meet(call, deadline);
  switch (call.op) {
    case CommOp::kAllReduce:
      return call.Bytes() * (size() - 1) <= kSmallBytes ? SmallAllReduce(call, deadline)
                                                        : LargeAllReduce(call, deadline);
    case CommOp::kReduceScatter:
      return ReduceShards(call, deadline);
    case CommOp::kAllGather:
      return GatherShards(call, deadline);
    case CommOp::kBroadcast:
      return SendFromRoot(call, deadline);
    case CommOp::kAllToAll:
      return ExchangeShards(call, deadline);
    case CommOp::kBarrier:
    case CommOp::kSend:
    case CommOp::kRecv:
      break;
  }
  return Meet(call, deadline);
}

std::vector<const void*> ShmGroup::Terms(const void* own, int64_t offset) const {
  std::vector<const void*> terms(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    terms[static_cast<size_t>(peer)] = peer == rank() ? own : rounds_.Of(peer) + offset;
  }
  return terms;
}

Status ShmGroup::SmallAllReduce(const Call& call, base::MonotonicTime deadline) {
  CopyPart(rounds_.Mine(), call.in, call.Bytes());
  RETURN_IF_ERROR(Meet(call, deadline));
  ReduceAllShards(Terms(call.in, 0), call.out, call.count,
                  {.dtype = call.dtype, .op = call.reduce});
  return OkStatus();
}

Status ShmGroup::LargeAllReduce(const Call& call, base::MonotonicTime deadline) {
  const int64_t element = kernels::SizeOf(call.dtype);
  const PieceCut pieces({.count = call.count, .num_shards = size()}, element,
                        kInputBytes / size() / kCacheLine * kCacheLine);
  // Round t carries piece t of the terms, and piece t - 1 of the sums behind them.
  for (int64_t t = 0; t <= pieces.Num(); ++t) {
    for (int shard = 0; shard < size() && t < pieces.Num(); ++shard) {
      if (shard == rank()) continue;
      CopyPart(rounds_.Mine() + shard * pieces.Bytes(), Part(call.in, pieces.Offset(shard, t)),
               pieces.BytesOf(shard, t));
    }
    RETURN_IF_ERROR(Meet(call, deadline));
    for (int shard = 0; shard < size() && t > 0; ++shard) {
      if (shard == rank()) continue;
      CopyPart(Part(call.out, pieces.Offset(shard, t - 1)), rounds_.Of(shard) + kInputBytes,
               pieces.BytesOf(shard, t - 1));
    }
    if (t == pieces.Num()) break;
    const int64_t own = pieces.Offset(rank(), t);
    std::byte* const sum = rounds_.Mine() + kInputBytes;
    ReduceInOrder(Terms(Part(call.in, own), rank() * pieces.Bytes()), rank(), sum,
                  pieces.Count(rank(), t), {.dtype = call.dtype, .op = call.reduce});
    CopyPart(Part(call.out, own), sum, pieces.BytesOf(rank(), t));
  }
  return OkStatus();
}

Status ShmGroup::ReduceShards(const Call& call, base::MonotonicTime deadline) {
  const int64_t element = kernels::SizeOf(call.dtype);
  const PieceCut pieces({.count = call.count * size(), .num_shards = size()}, element,
                        kInputBytes / size() / kCacheLine * kCacheLine);
  for (int64_t t = 0; t < pieces.Num(); ++t) {
    for (int shard = 0; shard < size(); ++shard) {
      if (shard == rank()) continue;
      CopyPart(rounds_.Mine() + shard * pieces.Bytes(), Part(call.in, pieces.Offset(shard, t)),
               pieces.BytesOf(shard, t));
    }
    RETURN_IF_ERROR(Meet(call, deadline));
    ReduceInOrder(Terms(Part(call.in, pieces.Offset(rank(), t)), rank() * pieces.Bytes()), rank(),
                  Part(call.out, t * pieces.Bytes()), pieces.Count(rank(), t),
                  {.dtype = call.dtype, .op = call.reduce});
  }
  return OkStatus();
}

Status ShmGroup::GatherShards(const Call& call, base::MonotonicTime deadline) {
  const PieceCut pieces({.count = call.count * size(), .num_shards = size()},
                        kernels::SizeOf(call.dtype), kInputBytes);
  CopyPart(Part(call.out, rank() * call.Bytes()), call.in, call.Bytes());
  for (int64_t t = 0; t < pieces.Num(); ++t) {
    CopyPart(rounds_.Mine(), Part(call.in, t * pieces.Bytes()), pieces.BytesOf(rank(), t));
    RETURN_IF_ERROR(Meet(call, deadline));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      CopyPart(Part(call.out, pieces.Offset(peer, t)), rounds_.Of(peer), pieces.BytesOf(peer, t));
    }
  }
  return OkStatus();
}

Status ShmGroup::SendFromRoot(const Call& call, base::MonotonicTime deadline) {
  const PieceCut pieces({.count = call.count, .num_shards = 1}, kernels::SizeOf(call.dtype),
                        kInputBytes);
  for (int64_t t = 0; t < pieces.Num(); ++t) {
    std::byte* const part = Part(call.out, pieces.Offset(0, t));
    if (call.peer == rank()) CopyPart(rounds_.Mine(), part, pieces.BytesOf(0, t));
    RETURN_IF_ERROR(Meet(call, deadline));
    if (call.peer != rank()) CopyPart(part, rounds_.Of(call.peer), pieces.BytesOf(0, t));
  }
  return OkStatus();
}

Status ShmGroup::ExchangeShards(const Call& call, base::MonotonicTime deadline) {
  const PieceCut pieces({.count = call.count * size(), .num_shards = size()},
                        kernels::SizeOf(call.dtype),
                        kInputBytes / size() / kCacheLine * kCacheLine);
  const int64_t own = rank() * call.Bytes();
  CopyPart(Part(call.out, own), Part(call.in, own), call.Bytes());
  for (int64_t t = 0; t < pieces.Num(); ++t) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      CopyPart(rounds_.Mine() + peer * pieces.Bytes(), Part(call.in, pieces.Offset(peer, t)),
               pieces.BytesOf(peer, t));
    }
    RETURN_IF_ERROR(Meet(call, deadline));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      CopyPart(Part(call.out, pieces.Offset(peer, t)), rounds_.Of(peer) + rank() * pieces.Bytes(),
               pieces.BytesOf(peer, t));
    }
  }
  return OkStatus();
}

}  // namespace mt::comm
