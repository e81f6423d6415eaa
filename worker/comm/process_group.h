// A fixed set of ranks that communicate: the one interface behind which ranks as threads
// (worker/comm/threads) and as processes (worker/comm/gloo) stand, and NCCL later. Callers in
// worker/parallel know groups only by this class. Algorithms, bytes and steps: README.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "worker/comm/comm_config.h"

namespace mt::comm {

enum class ReduceOp : uint8_t { kSum, kMax };

// Who is in a group: its name, unique in the job and epoch ("dp/3", "pp-act/0-1"), the world ranks
// of its members in group order, and which of them this process or thread is.
struct GroupSpec {
  std::string name;
  std::vector<int> members;
  int my_index = 0;
};

// Calls. Every member makes the same collective calls with the same counts, types, operations and
// roots in the same order; a difference is an error where it is seen (kFailedPrecondition). Counts
// are elements; `rank`, `peer` and `root` are indices in the group. Memory is the device's: on the
// CPU a call blocks until its result is there, on a GPU it enqueues on `stream`. A count of 0 is a
// valid call (a rendezvous of collectives, an empty message). Buffers must not overlap except where
// a comment says so.
//
// Sums. kSum and kMax over f32, f64, i32, i64, u8 (integers wrap), bf16, f16 (summed in fp32,
// rounded once). The order of every sum is a function of the element's position, the call's
// count, the type and the group's size, never of timing, of the message path or of the
// implementation: all members hold the same bits, a rerun gives them again, threads and processes
// agree. kMax propagates NaN.
//
// Failures. Each call ends within config.op_timeout. kDeadlineExceeded: it did not; kUnavailable: a
// peer went away (the message names it); kAborted: Abort() here. Any of them breaks the group:
// outputs are undefined, every later call returns the same status at once, peers get kUnavailable.
// kInvalidArgument (negative count, unknown peer) is refused before anything is sent and breaks
// nothing. No exception leaves this class.
//
// Threads. Operations are called by one thread at a time; Abort(), Stats() and status() by any
// thread at any time before destruction. Destruction ends the member's part: what is still on its
// way to it is dropped, and messages sent but not yet received may be lost (end with a Barrier).
class ProcessGroup {
 public:
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  virtual ~ProcessGroup() = default;

  int rank() const { return spec_.my_index; }
  int size() const { return static_cast<int>(spec_.members.size()); }
  const std::string& name() const { return spec_.name; }
  // World rank of the member with this index.
  int WorldRank(int index) const { return spec_.members[static_cast<size_t>(index)]; }

  // out[i] = reduction over ranks of in[i]; out == in allowed.
  [[nodiscard]] Status AllReduce(kernels::Stream& stream, const void* in, void* out, int64_t count,
                                 kernels::DType dtype, ReduceOp op);
  // in [size * shard_count], out [shard_count]: rank r gets the sum of everyone's shard r. out ==
  // in
  // + r shards allowed; the rest of `in` is not changed.
  [[nodiscard]] Status ReduceScatter(kernels::Stream& stream, const void* in, void* out,
                                     int64_t shard_count, kernels::DType dtype, ReduceOp op);
  // in [shard_count], out [size * shard_count] = shards in rank order. in == out + r shards
  // allowed.
  [[nodiscard]] Status AllGather(kernels::Stream& stream, const void* in, void* out,
                                 int64_t shard_count, kernels::DType dtype);
  // data of `root` to everyone, in place.
  [[nodiscard]] Status Broadcast(kernels::Stream& stream, void* data, int64_t count,
                                 kernels::DType dtype, int root);
  // in, out [size * shard_count]: shard p of in goes to rank p; shard p of out comes from rank p.
  [[nodiscard]] Status AllToAll(kernels::Stream& stream, const void* in, void* out,
                                int64_t shard_count, kernels::DType dtype);
  // A message to another member on an edge (0 <= edge < kMaxEdges). Messages of one (sender,
  // receiver, edge) arrive in the order sent; edges are independent. Send returns once the data is
  // copied: it waits for its receiver only when kSendWindow messages of that edge are under way.
  // Recv's count and type must be the sender's.
  [[nodiscard]] Status Send(kernels::Stream& stream, const void* data, int64_t count,
                            kernels::DType dtype, int peer, int edge);
  [[nodiscard]] Status Recv(kernels::Stream& stream, void* data, int64_t count,
                            kernels::DType dtype, int peer, int edge);
  // Returns when every member has called it.
  [[nodiscard]] Status Barrier(kernels::Stream& stream);

  static constexpr int kMaxEdges = 1024;
  static constexpr int kSendWindow = 16;

  // Ends the running call and all later ones with kAborted and this reason; peers get kUnavailable.
  // Returns at once, from any thread. The first failure wins: a broken group stays as it is.
  void Abort(std::string_view reason);
  // OK, or what broke the group.
  Status status() const;
  CommStats Stats() const;

  // For implementations: one call, as all members must make it; pointers are this member's own.
  struct Call {
    CommOp op = CommOp::kBarrier;
    int64_t count = 0;  // elements; per shard where the operation has shards
    kernels::DType dtype = kernels::DType::kU8;
    ReduceOp reduce = ReduceOp::kSum;
    int peer = -1;  // root, sender or receiver
    int edge = 0;
    const void* in = nullptr;
    void* out = nullptr;

    int64_t Bytes() const { return count * kernels::SizeOf(dtype); }
    // Whether two members' calls may meet; pointers aside.
    bool Matches(const Call& other) const;
    // "all_reduce sum of 100 f32"
    std::string Describe() const;
  };

 protected:
  ProcessGroup(GroupSpec spec, CommConfig config);

  const GroupSpec& spec() const { return spec_; }
  const CommConfig& config() const { return config_; }
  // "group dp/3, rank 1 (world 5) of 4": the start of every message.
  std::string Describe() const;
  // "rank 2 (world 6)"
  std::string DescribePeer(int index) const;
  // Breaks the group unless it is broken; returns what broke it.
  Status Fail(const Status& why);

 private:
  // Checks, times and counts the call around DoCall.
  Status Run(kernels::Stream& stream, const Call& call);
  Status Validate(const Call& call) const;

  // The implementation. `call` is valid, the group was not broken a moment ago. Returns errors
  // without breaking the group: Run does.
  virtual Status DoCall(kernels::Stream& stream, const Call& call,
                        base::MonotonicTime deadline) = 0;
  // Wakes every wait of this member and lets peers know; status() already tells why. Any thread,
  // called once.
  virtual void OnBroken() = 0;

  const GroupSpec spec_;
  const CommConfig config_;
  mutable base::Mutex mu_;
  Status status_ GUARDED_BY(mu_);
  CommStats stats_ GUARDED_BY(mu_);
  bool running_ GUARDED_BY(mu_) = false;
  base::MonotonicTime call_start_ GUARDED_BY(mu_);
};

}  // namespace mt::comm
