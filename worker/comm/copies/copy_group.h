// A process group of GPUs of one host over their copy engines: a member writes into its peers'
// memory, and words order the members' streams (peer_words.h). Nothing of it takes thread blocks
// but the sums of what has arrived, which the members' own kernels form. Calls enqueue on the
// caller's stream and return. Source: docs/design/gpu-engine.md#process-groups.
//
// Operations: all-reduce and reduce-scatter (sums of floats, of the latter also their terms alone),
// all-gather, broadcast, barrier; others return kUnimplemented and break the group. What they work
// on lies in memory given to Share, at the same places on all members; else kFailedPrecondition.
//
// Bits: the order of sums of worker/comm/reduce.h, as groups of host memory have it, whatever the
// operation and its cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops/vector.h"
#include "worker/comm/copies/peer_words.h"
#include "worker/comm/copies/shared_windows.h"
#include "worker/comm/copies/term_slots.h"
#include "worker/comm/device_watch.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

class CopyGroup final : public ProcessGroup, private DeviceWatch::Watched {
 public:
  // So many members at most: what they sum is added by one kernel.
  static constexpr int kMostMembers = kernels::kMaxPartials;

  // What is not owned must outlive the group.
  struct Args {
    std::unique_ptr<ProcessGroup> host;  // of the same members, for words between the hosts
    kernels::Device* device = nullptr;
    const kernels::VectorOps* vector = nullptr;
    std::unique_ptr<PeerWords> words;
    DeviceWatch* watch = nullptr;
  };
  CopyGroup(GroupSpec spec, CommConfig config, Args args);
  ~CopyGroup() override;

  bool shares_memory() const override { return true; }
  int64_t ScratchBytes(int64_t bytes) const override;
  Status Share(const SharedMemory& memory) override;
  void LetGo() override;
  const SumTerms* terms() const override { return &slots_; }

  // Breaks the group if its latest call is late and the peers' exchanges do not go on either; of a
  // broken one, ends again waits that a store of a peer which has died since has brought back.
  void Look(base::MonotonicTime now) override LOCKS_EXCLUDED(calls_mu_);

 private:
  using Part = SharedPart;

  Status DoCall(kernels::Stream& stream, const Call& call, base::MonotonicTime deadline) override;
  void OnBroken() override;

  Status Enqueue(kernels::Stream& stream, const Call& call);
  Status AllReduceParts(kernels::Stream& stream, const Call& call);
  Status ReduceScatterParts(kernels::Stream& stream, const Call& call);
  Status AllGatherParts(kernels::Stream& stream, const Call& call);
  Status BroadcastWhole(kernels::Stream& stream, const Call& call);
  // `shards`: by member, of any sizes, of which this one's sum is formed at `out`.
  Status Reduce(kernels::Stream& stream, const Call& call, std::span<const Part> shards, void* out);
  void ReducePiece(kernels::Stream& stream, const Call& call, std::span<const Part> pieces,
                   void* out);
  // `terms`: by member, each of a slot's size at most; this one's arrive in the scratch.
  void SendTerms(kernels::Stream& stream, std::span<const Part> terms);
  // `shards`: by member; each goes from its member to all others.
  void Gather(kernels::Stream& stream, std::span<const Part> shards);
  // Of one piece: the shards that have arrived, and this member's own.
  void SumArrived(kernels::Stream& stream, const Call& call, const Part& own, void* out);
  // `entered`: the exchanges that the peers have entered, by member.
  void BreakLate(const Call& late, uint32_t number, std::vector<uint32_t> entered);
  int Next(int distance) const { return (rank() + distance) % size(); }
  // Lets all peers write this member's memory for a new call, whose number it returns.
  uint32_t Enter(kernels::Stream& stream);
  void AwaitAll(kernels::Stream& stream, PeerWords::Kind kind, uint32_t number);

  const Args args_;
  const std::unique_ptr<kernels::Stream> host_stream_;
  SharedWindows windows_;
  TermSlots slots_;
  uint32_t number_ = 0;  // of the latest exchange

  base::Mutex calls_mu_;
  std::optional<Call> latest_ GUARDED_BY(calls_mu_);
  uint32_t latest_number_ GUARDED_BY(calls_mu_) = 0;
  base::MonotonicTime enqueued_ GUARDED_BY(calls_mu_);
  std::vector<uint32_t> seen_ GUARDED_BY(calls_mu_);  // what Look found the peers to have entered
  base::MonotonicTime looked_at_ GUARDED_BY(calls_mu_);
  base::MonotonicTime moved_at_ GUARDED_BY(calls_mu_);  // when it first did
};

}  // namespace mt::comm
