// Settings and counters of one rank's process groups: deadlines, the network interface, statistics
// for metrics. Plain values, set before the groups are created.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "worker/comm/host_identity.h"

namespace mt::comm {

struct CommConfig {
  // Deadline of one operation (ProcessGroup::SetOpTimeout). A call that takes longer fails with
  // kDeadlineExceeded, and the group is broken. Must exceed every wait of a healthy job (a peer
  // that saves, compiles or evaluates).
  std::chrono::milliseconds op_timeout = std::chrono::minutes(10);
  // Deadline of the creation of a group, rendezvous included.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(2);
  // The address on which the rank listens: an interface ("eth0") or an address under which its
  // peers reach it (a name or an IP). At most one of the two may be set; with neither it is
  // 127.0.0.1. Ports are ephemeral, because Gloo 0.5 binds port 0 (README.md).
  std::string interface_name;
  std::string bind_address;
  // Where this rank is, HostIdentity: members of one identity may share memory, others never do.
  std::string host = HostIdentity();
};

// The operations of a ProcessGroup; index of CommStats::ops.
enum class CommOp : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
};
inline constexpr int kNumCommOps = 8;

// The operation's name ("all_reduce", ...), as used in the `op` label of metrics and in errors.
std::string_view Name(CommOp op);

// Counters of one operation on one rank in one group since its creation, failed calls included.
struct OpStats {
  int64_t num_calls = 0;
  int64_t payload_bytes = 0;  // bytes of the result or message (README.md: per op)
  double seconds = 0;         // time inside the calls, including waits for peers
};

// A snapshot of one group's counters.
struct CommStats {
  std::array<OpStats, kNumCommOps> ops;
  double inflight_seconds = 0;  // age of the call in progress; 0: none

  const OpStats& of(CommOp op) const { return ops[static_cast<size_t>(op)]; }
};

}  // namespace mt::comm
