// A fixed set of ranks that communicate, as NCCL's communicator or PyTorch's ProcessGroup.
// Implemented for ranks as threads (worker/comm/threads), as processes over TCP (worker/comm/gloo)
// and shared memory (worker/comm/shm), and for GPUs (worker/comm/nccl, worker/comm/copies). Callers
// in worker/parallel know groups only by this class. Algorithms, bytes and steps: README.md.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "worker/comm/call.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/sum_terms.h"

namespace mt::comm {

// Identity of a group: its name, unique in the job and epoch ("dp/3", "pp-act/0-1"), the world
// ranks of its members in group order, and which of them this process or thread is.
struct GroupSpec {
  std::string name;
  std::vector<int> members;
  int my_index = 0;
  // What the group carries are words: a few KiB a member, in all-reduces, all-gathers, broadcasts
  // and barriers alone (other calls are kInvalidArgument). Such a group may have any size.
  bool words = false;
  // Where a factory would make a group of another kind than its own (worker/comm/copies), it makes
  // none: nullptr, on all members alike.
  bool own_kind = false;
};

// Calls. Every member makes the same collective calls with the same counts, types, operations and
// roots in the same order; where a member sees a difference it fails with kFailedPrecondition.
// Counts are in elements; `rank`, `peer` and `root` are indices in the group. Pointers are to
// device memory: on the CPU a call blocks until its result is complete, on a GPU it is enqueued on
// `stream`. A count of 0 is valid (a barrier for collectives, an empty message). Buffers must not
// overlap except where a comment allows it.
//
// Reductions. kSum and kMax over f32, f64, i32, i64, u8 (integers wrap) and bf16, f16. All members
// obtain the same bits, and a rerun of the same calls on the same machine reproduces them.
// Host memory (threads, Gloo, shared memory): the order of every sum is a function of the element's
// position, the call's count, the type and the group's size, and never of timing, algorithm or
// implementation, so that threads and processes agree; 16-bit sums are accumulated in fp32 and
// rounded once; kMax propagates NaN.
// Device memory over copies (worker/comm/copies): the same.
// Device memory over NCCL: the order is NCCL's, and with three ranks and more it depends on the
// operation and on how a tensor is cut into calls; 16-bit sums are rounded at each hop; kMax drops
// NaN. Nothing may rely on more: norms and flags travel as sums.
//
// Failures. Every call ends within op_timeout(). kDeadlineExceeded: it could not complete in
// that time; kUnavailable: a peer is gone (the message names it); kAborted: Abort() was called on
// this member. Each of them breaks the group, as does kFailedPrecondition: outputs are undefined,
// every later call returns the same status at once, and peers get kUnavailable. kInvalidArgument
// (negative count, unknown peer) is returned before anything is sent and does not break the group.
// No exception leaves this class.
//
// Threads. Operations are called by one thread at a time (CHECK); Abort(), Stats() and status() by
// any thread at any time before destruction. Destruction ends this member's part: messages that are
// on their way to it are dropped, and messages it has sent may be lost if they were not yet
// received (end with a Barrier).
class ProcessGroup {
 public:
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  virtual ~ProcessGroup() = default;

  int rank() const { return spec_.my_index; }
  int size() const { return static_cast<int>(spec_.members.size()); }
  const std::string& name() const { return spec_.name; }
  // Where this member is (CommConfig::host).
  const std::string& host_identity() const { return config_.host; }
  // World rank of the member with this index.
  int WorldRank(int index) const { return spec_.members[static_cast<size_t>(index)]; }

  // out[i] = reduction over all ranks of in[i], in and out [count]. out == in is allowed.
  [[nodiscard]] Status AllReduce(kernels::Stream& stream, const void* in, void* out, int64_t count,
                                 kernels::DType dtype, ReduceOp op);
  // in [size * shard_count], out [shard_count]: rank r receives the reduction of everyone's shard
  // r. out may be in + r * shard_count, this rank's own shard; the other shards of `in` are not
  // changed. out may be nullptr where the terms of the sum fit (terms(), CHECK), which are kSum:
  // they stay where they arrive, and this rank's own shard of `in` is neither read nor written, so
  // that it may still be written meanwhile.
  [[nodiscard]] Status ReduceScatter(kernels::Stream& stream, const void* in, void* out,
                                     int64_t shard_count, kernels::DType dtype, ReduceOp op);
  // in [shard_count], out [size * shard_count]: the shards in rank order. in may be out + r *
  // shard_count, this rank's own place.
  [[nodiscard]] Status AllGather(kernels::Stream& stream, const void* in, void* out,
                                 int64_t shard_count, kernels::DType dtype);
  // data [count] of `root` replaces everyone's, in place.
  [[nodiscard]] Status Broadcast(kernels::Stream& stream, void* data, int64_t count,
                                 kernels::DType dtype, int root);
  // in, out [size * shard_count]: shard p of `in` goes to rank p, shard p of `out` comes from rank
  // p.
  [[nodiscard]] Status AllToAll(kernels::Stream& stream, const void* in, void* out,
                                int64_t shard_count, kernels::DType dtype);
  // A message to another member on an edge (0 <= edge < kMaxEdges). Messages of one (sender,
  // receiver, edge) arrive in the order in which they were sent; edges are independent. Send
  // returns once the data is copied; it waits for the receiver only while kSendWindow messages of
  // that edge are not yet received. Count and type of Recv must equal the sender's.
  [[nodiscard]] Status Send(kernels::Stream& stream, const void* data, int64_t count,
                            kernels::DType dtype, int peer, int edge);
  [[nodiscard]] Status Recv(kernels::Stream& stream, void* data, int64_t count,
                            kernels::DType dtype, int peer, int edge);
  // Blocks until every member has called it.
  [[nodiscard]] Status Barrier(kernels::Stream& stream);

  static constexpr int kMaxEdges = 1024;
  static constexpr int kSendWindow = 16;

  // Groups that copy from member to member (worker/comm/copies) must know, before their first
  // collective, in which device memory operands will lie, at the same offsets on all members; a
  // sum's operands need scratch memory besides. Share is collective and blocks until all have come;
  // its errors break the group, but for kUnavailable where a member's driver refuses: all members
  // obtain that, and the group may be left unused. Before the memory is freed all members call
  // LetGo, which waits until no peer uses it, unless the group is broken. The memory must be of the
  // kind that devices share (MemoryKind::kShared). For other groups all of this is nothing.
  struct SharedMemory {
    struct Piece {
      void* data = nullptr;
      int64_t bytes = 0;
    };
    std::vector<Piece> operands;
    Piece scratch;
  };
  virtual bool shares_memory() const { return false; }
  // Scratch for sums over `bytes` bytes of input.
  virtual int64_t ScratchBytes(int64_t /*bytes*/) const { return 0; }
  [[nodiscard]] virtual Status Share(const SharedMemory& /*memory*/) { return OkStatus(); }
  virtual void LetGo() {}
  // Of groups that can leave a sum's terms to their caller; nullptr: this one forms all sums.
  virtual const SumTerms* terms() const { return nullptr; }

  // Deadline of a call that begins from now on; at first config.op_timeout. Any thread.
  void SetOpTimeout(std::chrono::milliseconds limit) { op_timeout_ms_ = limit.count(); }
  std::chrono::milliseconds op_timeout() const {
    return std::chrono::milliseconds(op_timeout_ms_.load());
  }

  // Breaks the group: the call in progress and all later ones return kAborted with this reason,
  // peers get kUnavailable. Returns at once; any thread. The first failure wins: a group that is
  // already broken keeps its status.
  void Abort(std::string_view reason);
  // The same with this status; returns the one that broke the group.
  Status Fail(const Status& why);
  // OK, or the status that broke the group.
  Status status() const;
  CommStats Stats() const;
  // This member's calls; logged when a deadline or a difference between members breaks the group.
  const FlightRecord& flight_record() const { return flight_record_; }
  ListenerSlot& listener() { return listener_; }

  // For implementations: the arguments of one call.
  using Call = CommCall;

 protected:
  ProcessGroup(GroupSpec spec, CommConfig config);

  const GroupSpec& spec() const { return spec_; }
  const CommConfig& config() const { return config_; }
  // "group dp/3, rank 1 (world 5) of 4", with which every message begins.
  std::string Describe() const;
  // "rank 2 (world 6)"
  std::string DescribePeer(int index) const;

 private:
  // Validates the call, runs DoCall, counts it and breaks the group on failure.
  Status Run(kernels::Stream& stream, const Call& call);
  Status Validate(const Call& call) const;

  // Executes a call, which has been validated. Returns errors without breaking the group, which is
  // Run's task.
  virtual Status DoCall(kernels::Stream& stream, const Call& call,
                        base::MonotonicTime deadline) = 0;
  // Wakes every wait of this member and notifies its peers; status() already has the reason. Called
  // once, by any thread.
  virtual void OnBroken() = 0;

  const GroupSpec spec_;
  const CommConfig config_;
  std::atomic<int64_t> op_timeout_ms_;
  mutable base::Mutex mu_;
  Status status_ GUARDED_BY(mu_);
  CommStats stats_ GUARDED_BY(mu_);
  bool running_ GUARDED_BY(mu_) = false;
  base::MonotonicTime call_start_ GUARDED_BY(mu_);
  FlightRecord flight_record_;
  ListenerSlot listener_;
};

// Gives a group (nullptr: none) another deadline for what is called while this object lives.
class OpTimeoutScope {
 public:
  OpTimeoutScope(ProcessGroup* group, std::chrono::milliseconds limit)
      : group_(group), before_(group == nullptr ? limit : group->op_timeout()) {
    if (group_ != nullptr) group_->SetOpTimeout(limit);
  }
  ~OpTimeoutScope() {
    if (group_ != nullptr) group_->SetOpTimeout(before_);
  }
  OpTimeoutScope(const OpTimeoutScope&) = delete;
  OpTimeoutScope& operator=(const OpTimeoutScope&) = delete;

 private:
  ProcessGroup* const group_;
  const std::chrono::milliseconds before_;
};

}  // namespace mt::comm
