// Settings and counters of the process groups of one rank: deadlines, the network interface, what
// metrics read. Values only; set before the groups are created.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace mt::comm {

struct CommConfig {
  // Longest time one operation may take; then it fails with kDeadlineExceeded and the group with
  // it. Longer than any wait that a healthy job has (a peer that saves, compiles or evaluates).
  std::chrono::milliseconds op_timeout = std::chrono::minutes(10);
  // Longest time the creation of a group may take, rendezvous included.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(2);
  // Where the rank listens: an interface ("eth0") or an address that its peers reach (a name or an
  // IP). At most one of the two; both empty: 127.0.0.1. Ports are ephemeral: Gloo 0.5 binds port 0
  // (README.md).
  std::string interface_name;
  std::string bind_address;
};

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

// "all_reduce", ...: the `op` label of metrics, and the word used in errors.
std::string_view Name(CommOp op);

// What one rank did in one group since its creation. Failed calls count too.
struct OpStats {
  int64_t num_calls = 0;
  int64_t payload_bytes = 0;  // bytes of the caller's result or message (README.md: per op)
  double seconds = 0;         // time inside the calls, waiting for peers included
};

struct CommStats {
  std::array<OpStats, kNumCommOps> ops;
  double inflight_seconds = 0;  // age of the call that runs now, else 0

  const OpStats& of(CommOp op) const { return ops[static_cast<size_t>(op)]; }
};

}  // namespace mt::comm
