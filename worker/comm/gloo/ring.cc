// Every algorithm is a sequence of numbered items, two in flight: item i is started when item i - 2
// is finished. Items of the same parity share a slot (a lane), so that messages within a lane match
// in order.
#include "worker/comm/gloo/ring.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "common/base/math.h"
#include "worker/comm/bytes.h"

namespace mt::comm {
namespace {

constexpr int kLanes = 2;

template <class Start, class Finish>
Status RunTwoInFlight(int64_t num_items, Start start, Finish finish) {
  for (int64_t i = 0; i < num_items + kLanes; ++i) {
    if (i >= kLanes) RETURN_IF_ERROR(finish(i - kLanes));
    if (i < num_items) RETURN_IF_ERROR(start(i));
  }
  return OkStatus();
}

// One item of a ring: a segment of a shard at one of the num_members - 1 steps. A lane moves its
// segments one after the other through all steps.
struct RingItem {
  int lane = 0;
  int64_t segment = 0;
  int step = 0;
};

RingItem ItemOf(int64_t i, int num_steps) {
  const int64_t of_lane = i / kLanes;
  return {.lane = static_cast<int>(i % kLanes),
          .segment = i % kLanes + kLanes * (of_lane / num_steps),
          .step = static_cast<int>(of_lane % num_steps)};
}

// Offsets and sizes of the segments of all shards.
struct SegmentPlan {
  ShardCut cut;
  int64_t element = 1;
  int64_t segment_size = 0;  // elements

  SegmentPlan(ShardCut shard_cut, int64_t element_bytes, int64_t segment_bytes)
      : cut(shard_cut), element(element_bytes), segment_size(segment_bytes / element_bytes) {}

  int64_t NumSegments() const { return base::CeilDiv(cut.Size(), segment_size); }
  // Rounded up to whole rounds of the lanes; the segments beyond the last are empty.
  int64_t NumRingItems(int num_steps) const {
    return base::RoundUp(NumSegments(), kLanes) * num_steps;
  }
  int64_t Offset(int shard, int64_t segment) const {
    return (cut.Begin(shard) + segment * segment_size) * element;
  }
  // Elements of a segment; 0 beyond the shard's end.
  int64_t Count(int shard, int64_t segment) const {
    return std::clamp(cut.CountOf(shard) - segment * segment_size, int64_t{0}, segment_size);
  }
  int64_t Bytes(int shard, int64_t segment) const { return Count(shard, segment) * element; }
};

// At step t member `me` sends shard (me - t - 1) and receives shard (me - t - 2), to which it adds
// its own term; after the last step its own shard is complete. Partial sums alternate between two
// halves of the lane's scratch: one is sent while the other is received.
class RingReducer {
 public:
  RingReducer(const Transfer& transfer, const void* in, void* out, const SegmentPlan& plan,
              ReduceType type)
      : transfer_(transfer), in_(in), out_(out), plan_(plan), type_(type) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      inputs_[lane] = transfer.mesh->Register(in, plan.cut.count * plan.element);
      for (size_t half = 0; half < 2; ++half) {
        partials_[lane][half] = transfer.mesh->Register(
            transfer.scratch + static_cast<int64_t>(2 * lane + half) * kSegmentBytes,
            kSegmentBytes);
      }
    }
  }

  int NumSteps() const { return transfer_.num_members - 1; }

  Status Start(const RingItem& item) {
    GlooMesh& mesh = *transfer_.mesh;
    const uint64_t slot = kLaneSlot + static_cast<uint64_t>(item.lane);
    const int send_shard = transfer_.Shift(-item.step - 1);
    const int64_t send_bytes = plan_.Bytes(send_shard, item.segment);
    const int64_t recv_bytes = plan_.Bytes(transfer_.Shift(-item.step - 2), item.segment);
    if (recv_bytes > 0) {
      RETURN_IF_ERROR(mesh.PostRecv(Partial(item, item.step), Previous(), slot,
                                    {.offset = 0, .bytes = recv_bytes}));
    }
    if (send_bytes == 0) return OkStatus();
    const int64_t offset = item.step == 0 ? plan_.Offset(send_shard, item.segment) : 0;
    return mesh.PostSend(Outgoing(item), Next(), slot, {.offset = offset, .bytes = send_bytes});
  }

  Status Finish(const RingItem& item) {
    GlooMesh& mesh = *transfer_.mesh;
    const int recv_shard = transfer_.Shift(-item.step - 2);
    const int64_t count = plan_.Count(recv_shard, item.segment);
    if (count > 0) {
      GlooBuffer& partial = Partial(item, item.step);
      RETURN_IF_ERROR(mesh.WaitRecv(partial, Previous(), transfer_.deadline));
      void* into = item.step == NumSteps() - 1
                       ? At(out_, item.segment * plan_.segment_size * plan_.element)
                       : partial.ptr;
      Combine(into, partial.ptr, At(in_, plan_.Offset(recv_shard, item.segment)), count, type_);
    }
    if (plan_.Bytes(transfer_.Shift(-item.step - 1), item.segment) == 0) return OkStatus();
    return mesh.WaitSend(Outgoing(item), Next(), transfer_.deadline);
  }

 private:
  int Next() const { return transfer_.Shift(1); }
  int Previous() const { return transfer_.Shift(-1); }
  GlooBuffer& Partial(const RingItem& item, int step) {
    return *partials_[static_cast<size_t>(item.lane)][static_cast<size_t>(step % 2)];
  }
  GlooBuffer& Outgoing(const RingItem& item) {
    return item.step == 0 ? *inputs_[static_cast<size_t>(item.lane)] : Partial(item, item.step - 1);
  }

  const Transfer transfer_;
  const void* const in_;
  void* const out_;
  const SegmentPlan plan_;
  const ReduceType type_;
  std::array<std::unique_ptr<GlooBuffer>, kLanes> inputs_;
  std::array<std::array<std::unique_ptr<GlooBuffer>, 2>, kLanes> partials_;
};

}  // namespace

Status RingReduceScatter(const Transfer& transfer, const void* in, void* out, ShardCut cut,
                         ReduceType type) {
  const SegmentPlan plan(cut, kernels::SizeOf(type.dtype), kSegmentBytes);
  RingReducer ring(transfer, in, out, plan, type);
  const int num_steps = ring.NumSteps();
  return RunTwoInFlight(
      plan.NumRingItems(num_steps), [&](int64_t i) { return ring.Start(ItemOf(i, num_steps)); },
      [&](int64_t i) { return ring.Finish(ItemOf(i, num_steps)); });
}

Status DirectReduceScatter(const Transfer& transfer, const void* in, void* out, ShardCut cut,
                           ReduceType type) {
  GlooMesh& mesh = *transfer.mesh;
  const int num_peers = transfer.num_members - 1;
  // A lane's half of the scratch holds one segment from every peer.
  const int64_t segment_bytes =
      std::min(kSegmentBytes, kScratchBytes / kLanes / num_peers / 64 * 64);
  const SegmentPlan plan(cut, kernels::SizeOf(type.dtype), segment_bytes);
  const auto scratch_of = [&](int64_t i, int hop) {
    return transfer.scratch + (i % kLanes * num_peers + hop - 1) * segment_bytes;
  };
  // [lane][hop - 1]: sends to rank me + hop and receives from rank me - hop.
  std::vector<std::unique_ptr<GlooBuffer>> sends;
  std::vector<std::unique_ptr<GlooBuffer>> receives;
  for (int64_t i = 0; i < kLanes; ++i) {
    for (int hop = 1; hop <= num_peers; ++hop) {
      sends.push_back(mesh.Register(in, cut.count * plan.element));
      receives.push_back(mesh.Register(scratch_of(i, hop), segment_bytes));
    }
  }
  const auto index = [&](int64_t i, int hop) {
    return static_cast<size_t>(i % kLanes * num_peers + hop - 1);
  };
  const int me = transfer.my_index;
  const auto start = [&](int64_t i) -> Status {
    const uint64_t slot = kLaneSlot + static_cast<uint64_t>(i % kLanes);
    for (int hop = 1; hop <= num_peers; ++hop) {
      if (const int64_t bytes = plan.Bytes(me, i); bytes > 0) {
        RETURN_IF_ERROR(mesh.PostRecv(*receives[index(i, hop)], transfer.Shift(-hop), slot,
                                      {.offset = 0, .bytes = bytes}));
      }
      const int to = transfer.Shift(hop);
      if (const int64_t bytes = plan.Bytes(to, i); bytes > 0) {
        RETURN_IF_ERROR(mesh.PostSend(*sends[index(i, hop)], to, slot,
                                      {.offset = plan.Offset(to, i), .bytes = bytes}));
      }
    }
    return OkStatus();
  };
  const auto finish = [&](int64_t i) -> Status {
    std::vector<const void*> terms(static_cast<size_t>(transfer.num_members));
    terms[static_cast<size_t>(me)] = At(in, plan.Offset(me, i));
    for (int hop = 1; hop <= num_peers; ++hop) {
      const int from = transfer.Shift(-hop);
      if (plan.Bytes(me, i) > 0) {
        RETURN_IF_ERROR(mesh.WaitRecv(*receives[index(i, hop)], from, transfer.deadline));
      }
      terms[static_cast<size_t>(from)] = scratch_of(i, hop);
    }
    ReduceInOrder(terms, me, At(out, i * plan.segment_size * plan.element), plan.Count(me, i),
                  type);
    for (int hop = 1; hop <= num_peers; ++hop) {
      const int to = transfer.Shift(hop);
      if (plan.Bytes(to, i) == 0) continue;
      RETURN_IF_ERROR(mesh.WaitSend(*sends[index(i, hop)], to, transfer.deadline));
    }
    return OkStatus();
  };
  return RunTwoInFlight(plan.NumSegments(), start, finish);
}

Status RingAllGather(const Transfer& transfer, void* out, ShardCut cut, int64_t element) {
  GlooMesh& mesh = *transfer.mesh;
  const SegmentPlan plan(cut, element, kSegmentBytes);
  const int num_steps = transfer.num_members - 1;
  std::array<std::unique_ptr<GlooBuffer>, kLanes> sends;
  std::array<std::unique_ptr<GlooBuffer>, kLanes> receives;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    sends[lane] = mesh.Register(out, cut.count * element);
    receives[lane] = mesh.Register(out, cut.count * element);
  }
  const int next = transfer.Shift(1);
  const int previous = transfer.Shift(-1);
  const auto start = [&](int64_t i) -> Status {
    const RingItem item = ItemOf(i, num_steps);
    const uint64_t slot = kLaneSlot + static_cast<uint64_t>(item.lane);
    const auto lane = static_cast<size_t>(item.lane);
    const int come = transfer.Shift(-item.step - 1);
    if (const int64_t bytes = plan.Bytes(come, item.segment); bytes > 0) {
      RETURN_IF_ERROR(mesh.PostRecv(*receives[lane], previous, slot,
                                    {.offset = plan.Offset(come, item.segment), .bytes = bytes}));
    }
    const int go = transfer.Shift(-item.step);
    const int64_t bytes = plan.Bytes(go, item.segment);
    if (bytes == 0) return OkStatus();
    return mesh.PostSend(*sends[lane], next, slot,
                         {.offset = plan.Offset(go, item.segment), .bytes = bytes});
  };
  const auto finish = [&](int64_t i) -> Status {
    const RingItem item = ItemOf(i, num_steps);
    const auto lane = static_cast<size_t>(item.lane);
    if (plan.Bytes(transfer.Shift(-item.step - 1), item.segment) > 0) {
      RETURN_IF_ERROR(mesh.WaitRecv(*receives[lane], previous, transfer.deadline));
    }
    if (plan.Bytes(transfer.Shift(-item.step), item.segment) == 0) return OkStatus();
    return mesh.WaitSend(*sends[lane], next, transfer.deadline);
  };
  return RunTwoInFlight(plan.NumRingItems(num_steps), start, finish);
}

Status ChainBroadcast(const Transfer& transfer, void* data, int64_t bytes, int root) {
  GlooMesh& mesh = *transfer.mesh;
  const bool receives = transfer.my_index != root;
  const bool sends = transfer.Shift(1) != root;
  std::array<std::unique_ptr<GlooBuffer>, kLanes> incoming;
  std::array<std::unique_ptr<GlooBuffer>, kLanes> outgoing;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    incoming[lane] = mesh.Register(data, bytes);
    outgoing[lane] = mesh.Register(data, bytes);
  }
  const auto part = [&](int64_t i) -> GlooMesh::Part {
    return {.offset = i * kSegmentBytes,
            .bytes = std::min(kSegmentBytes, bytes - i * kSegmentBytes)};
  };
  const auto lane_of = [](int64_t i) { return static_cast<size_t>(i % kLanes); };
  const auto start = [&](int64_t i) -> Status {
    if (!receives) return OkStatus();
    return mesh.PostRecv(*incoming[lane_of(i)], transfer.Shift(-1), kLaneSlot + lane_of(i),
                         part(i));
  };
  const auto wait_sent = [&](int64_t i) -> Status {
    if (!sends || i < 0) return OkStatus();
    return mesh.WaitSend(*outgoing[lane_of(i)], transfer.Shift(1), transfer.deadline);
  };
  const auto finish = [&](int64_t i) -> Status {
    if (receives) {
      RETURN_IF_ERROR(mesh.WaitRecv(*incoming[lane_of(i)], transfer.Shift(-1), transfer.deadline));
    }
    RETURN_IF_ERROR(wait_sent(i - kLanes));
    if (!sends) return OkStatus();
    return mesh.PostSend(*outgoing[lane_of(i)], transfer.Shift(1), kLaneSlot + lane_of(i), part(i));
  };
  const int64_t num_segments = base::CeilDiv(bytes, kSegmentBytes);
  RETURN_IF_ERROR(RunTwoInFlight(num_segments, start, finish));
  RETURN_IF_ERROR(wait_sent(num_segments - 2));
  return wait_sent(num_segments - 1);
}

Status PairwiseAllToAll(const Transfer& transfer, const void* in, void* out, int64_t shard_bytes) {
  GlooMesh& mesh = *transfer.mesh;
  const int64_t total = shard_bytes * transfer.num_members;
  std::memcpy(At(out, transfer.my_index * shard_bytes), At(in, transfer.my_index * shard_bytes),
              static_cast<size_t>(shard_bytes));
  std::array<std::unique_ptr<GlooBuffer>, kLanes> sends;
  std::array<std::unique_ptr<GlooBuffer>, kLanes> receives;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    sends[lane] = mesh.Register(in, total);
    receives[lane] = mesh.Register(out, total);
  }
  const auto to = [&](int64_t i) { return transfer.Shift(static_cast<int>(i) + 1); };
  const auto from = [&](int64_t i) { return transfer.Shift(-static_cast<int>(i) - 1); };
  const auto lane_of = [](int64_t i) { return static_cast<size_t>(i % kLanes); };
  const auto start = [&](int64_t i) -> Status {
    const uint64_t slot = kLaneSlot + lane_of(i);
    RETURN_IF_ERROR(mesh.PostRecv(*receives[lane_of(i)], from(i), slot,
                                  {.offset = from(i) * shard_bytes, .bytes = shard_bytes}));
    return mesh.PostSend(*sends[lane_of(i)], to(i), slot,
                         {.offset = to(i) * shard_bytes, .bytes = shard_bytes});
  };
  const auto finish = [&](int64_t i) -> Status {
    RETURN_IF_ERROR(mesh.WaitRecv(*receives[lane_of(i)], from(i), transfer.deadline));
    return mesh.WaitSend(*sends[lane_of(i)], to(i), transfer.deadline);
  };
  return RunTwoInFlight(transfer.num_members - 1, start, finish);
}

}  // namespace mt::comm
