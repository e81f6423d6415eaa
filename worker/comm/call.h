// One call of a process group as its members must agree on it, the latest calls of a group, and who
// is told of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "kernels/core/dtype.h"
#include "worker/comm/comm_config.h"

namespace mt::comm {

enum class ReduceOp : uint8_t { kSum, kMax };

// The arguments of one call. Pointers are this member's own; everything else must agree among
// members.
struct CommCall {
  CommOp op = CommOp::kBarrier;
  int64_t count = 0;  // elements; per shard where the operation has shards
  kernels::DType dtype = kernels::DType::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  int peer = -1;  // root, sender or receiver
  int edge = 0;
  const void* in = nullptr;
  void* out = nullptr;

  int64_t Bytes() const { return count * kernels::SizeOf(dtype); }
  bool HasShards() const;
  // True if the calls of two members agree; pointers and edges are not compared.
  bool Matches(const CommCall& other) const;
  // "all_reduce sum of 100 f32"
  std::string Describe() const;
};

// The flight record of a group: its latest calls. Thread-safe.
class FlightRecord {
 public:
  static constexpr size_t kKept = 8;

  // Returns the call's number, from 1.
  int64_t Add(const CommCall& call) LOCKS_EXCLUDED(mu_);
  // Number of the latest call; 0: none.
  int64_t last() const LOCKS_EXCLUDED(mu_);
  // Oldest first: "call 7: all_reduce sum of 100 f32; call 8: barrier".
  std::string Describe() const LOCKS_EXCLUDED(mu_);

 private:
  mutable base::Mutex mu_;
  int64_t last_ GUARDED_BY(mu_) = 0;
  std::array<CommCall, kKept> calls_ GUARDED_BY(mu_);  // call n at n % kKept
};

// Is told of a group's calls (call_check.h), and may break the group.
class CallListener {
 public:
  virtual ~CallListener() = default;
  // Before a call is made, by the thread that makes it.
  virtual void OnCall(int64_t number, const CommCall& call) = 0;
  // Once, when the group is broken, by any thread.
  virtual void OnBroken() = 0;
};

// A group's listener, if it has one.
class ListenerSlot {
 public:
  // The listener must have been dropped (CHECK).
  ~ListenerSlot();
  // Once, before the group's first call.
  void Set(std::unique_ptr<CallListener> listener) LOCKS_EXCLUDED(mu_);
  // Destroys the listener. Groups that may have one do so first in their destructors, since it may
  // break them until then.
  void Drop() LOCKS_EXCLUDED(mu_);
  void TellCall(int64_t number, const CommCall& call) LOCKS_EXCLUDED(mu_);
  void TellBroken() LOCKS_EXCLUDED(mu_);

 private:
  base::Mutex mu_;
  std::unique_ptr<CallListener> listener_ GUARDED_BY(mu_);
};

}  // namespace mt::comm
