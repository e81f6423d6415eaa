// The numbers of the control plane that the code uses: one place, each with the id under which
// comments, tests and docs/design/control-plane.md#numbers name it; a test compares that table with
// this header. Job fields and daemon flags override where they exist.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace mt::rpc {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// L1: heartbeat of a worker; without one it is suspect, then lost.
inline constexpr milliseconds kHeartbeatInterval{2'000};
inline constexpr milliseconds kWorkerSuspectAfter{10'000};
inline constexpr milliseconds kWorkerLostAfter{30'000};

// L2: keepalive of client and server alike, without calls and data too; the shortest interval that
// a server accepts.
inline constexpr milliseconds kKeepaliveInterval{10'000};
inline constexpr milliseconds kKeepaliveTimeout{20'000};
inline constexpr milliseconds kKeepaliveShortest{5'000};

// L3: reconnect: first wait, growth and jitter (gRPC's own), cap; one attempt.
inline constexpr milliseconds kReconnectFirst{200};
inline constexpr double kReconnectGrowth = 1.6;
inline constexpr double kReconnectJitter = 0.2;
inline constexpr milliseconds kReconnectCap{5'000};
inline constexpr milliseconds kConnectAttempt{5'000};

// L9: idle reduction of held ranks; a rank's beat to its agent.
inline constexpr milliseconds kIdleReductionInterval{100};
inline constexpr milliseconds kRankBeatInterval{1'000};
inline constexpr milliseconds kRankBeatFrozenAfter{10'000};

// P1: the limit of a step: so many times the p99 of the steps so far, at least kStepLimit, and more
// during the first of a run; of a save without a byte; P2's look at it.
inline constexpr double kStepLimitFactor = 5;
inline constexpr seconds kStepLimit{60};
inline constexpr int kFirstSteps = 5;
inline constexpr seconds kFirstStepLimit{600};
inline constexpr seconds kSaveLimit{900};
inline constexpr seconds kProgressLook{5};

// P3: after a fault: a rank exits by itself; its agent kills the group; all ranks of the job are
// gone.
inline constexpr seconds kAbortSelfExit{3};
inline constexpr seconds kAbortKill{5};
inline constexpr seconds kAbortAllGone{10};

// P4: a GPU's memory is free again after its rank's exit, else its slot is out of order; how often
// that is looked at, and the longest that a look may take.
inline constexpr seconds kDeviceFreeAfterExit{60};
inline constexpr seconds kDeviceProbeInterval{2};
inline constexpr seconds kDeviceProbeLimit{10};

// P5: stop with a save; SIGTERM to SIGKILL.
inline constexpr seconds kStopGrace{600};
inline constexpr seconds kKillGrace{5};

// P6: an agent answers a placement.
inline constexpr seconds kPlacementAnswer{30};

// R2: wait before the n-th retry: none before the first, then base * 2^(n - 2) up to the cap.
inline constexpr seconds kRetryBase{5};
inline constexpr seconds kRetryCap{300};

// A1: the longest unary call; Wait calls; dial and request of mtctl.
inline constexpr seconds kUnaryLimit{60};
inline constexpr seconds kWaitLimit{300};
inline constexpr seconds kClientDial{2};
inline constexpr seconds kClientRequest{5};

// A2: a message; a job spec.
inline constexpr int kMaxMessageBytes = 4 << 20;
inline constexpr int64_t kMaxSpecBytes = int64_t{1} << 20;

// A3: how long request ids and finished operations are kept; events.
inline constexpr hours kRequestIdsKept = days{7};
inline constexpr hours kEventsKept = days{30};

// A4: queue of one stream, then a `dropped` marker.
inline constexpr size_t kStreamQueue = 1'024;

// T1: live metrics, at most so often.
inline constexpr milliseconds kLiveMetricsInterval{100};

}  // namespace mt::rpc
