// The numbers of the control plane that the code uses: one place, each with the id under which
// comments, tests and docs/design/control-plane.md#numbers name it; a test compares that table with
// this header. Job fields and daemon flags override where they exist.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace mt::control {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// L1: interval of a worker's heartbeats; after so long without one it is suspect, then lost.
inline constexpr milliseconds kHeartbeatInterval{2'000};
inline constexpr milliseconds kWorkerSuspectAfter{10'000};
inline constexpr milliseconds kWorkerLostAfter{30'000};

// L2: HTTP/2 keepalive of clients and servers, sent without calls or data as well; the shortest
// ping interval that a server accepts.
inline constexpr milliseconds kKeepaliveInterval{10'000};
inline constexpr milliseconds kKeepaliveTimeout{20'000};
inline constexpr milliseconds kKeepaliveShortest{5'000};

// L3: reconnecting: first backoff, its growth and jitter (gRPC's own), its cap; deadline of one
// attempt.
inline constexpr milliseconds kReconnectFirst{200};
inline constexpr double kReconnectGrowth = 1.6;
inline constexpr double kReconnectJitter = 0.2;
inline constexpr milliseconds kReconnectCap{5'000};
inline constexpr milliseconds kConnectAttempt{5'000};

// L9: interval of the reduction in which held ranks idle; of a rank's beat to its agent, and the
// age at which beats count as stopped.
inline constexpr milliseconds kIdleReductionInterval{100};
inline constexpr milliseconds kRankBeatInterval{1'000};
inline constexpr milliseconds kRankBeatFrozenAfter{10'000};

// L10: a turn of the coordinator's loop that lasts longer counts as so long (its own freeze).
inline constexpr milliseconds kOwnFreeze{2'000};
// L10: time within which the coordinator tells a rank whether its epoch is open; without an answer
// the save that asked fails.
inline constexpr seconds kEpochAnswer{5};

// L11: a client that holds a reader calls so often; so long after its last call the reader is
// cancelled.
inline constexpr seconds kOutputHoldInterval{2};
inline constexpr seconds kOutputHoldLimit{10};

// P1: limit of a step: this factor times the p99 of the steps so far, at least kStepLimit, and
// kFirstStepLimit during the first kFirstSteps of a run; limit of a save that writes no byte; of
// a pause that is to hold and makes no step; interval at which P2 checks progress.
inline constexpr double kStepLimitFactor = 5;
inline constexpr seconds kStepLimit{60};
inline constexpr int kFirstSteps = 5;
inline constexpr seconds kFirstStepLimit{600};
inline constexpr seconds kSaveLimit{900};
inline constexpr seconds kHoldLimit{1800};
inline constexpr seconds kProgressLook{5};

// P1: wait before a periodic save that failed is tried again, doubled with each failure in a row,
// and its cap.
inline constexpr seconds kSaveRetryFirst{30};
inline constexpr seconds kSaveRetryCap{900};

// P3: time after a fault until a rank exits by itself, until its agent kills the process group, and
// until all ranks of the job are gone.
inline constexpr seconds kAbortSelfExit{3};
inline constexpr seconds kAbortKill{5};
inline constexpr seconds kAbortAllGone{10};

// P4: time within which a GPU's memory is free again after its rank's exit, else its slot is taken
// out of service; interval of the probe, and its longest duration.
inline constexpr seconds kDeviceFreeAfterExit{60};
inline constexpr seconds kDeviceProbeInterval{2};
inline constexpr seconds kDeviceProbeLimit{10};
// The longest check of a node's BLAS.
inline constexpr seconds kBlasCheckLimit{30};

// P5: time for a stop that saves a checkpoint; time from SIGTERM to SIGKILL.
inline constexpr seconds kStopGrace{600};
inline constexpr seconds kKillGrace{5};

// P6: time within which an agent answers a placement.
inline constexpr seconds kPlacementAnswer{30};

// L7: after a declared restore nothing is placed until every node of the store has answered or was
// given up, at most for a rank's time without a coordinator (G) and this margin.
inline constexpr seconds kOrphanGrace{1'800};
inline constexpr seconds kRestoreMargin{900};
// P7: so long may a rank of a job that should have it be on no node; then it is a phantom. So long,
// too, may ranks hold where the job is to run, or train where it is to hold.
inline constexpr seconds kPhantomAfter{30};

// R2: backoff before the n-th retry: none before the first, then base * 2^(n - 2) up to the cap.
inline constexpr seconds kRetryBase{5};
inline constexpr seconds kRetryCap{300};
// R2: of the n-th new epoch in a row likewise, with this jitter, until the job was healthy for so
// long.
inline constexpr double kRestartJitter = 0.2;
inline constexpr hours kRestartReset{1};

// R1: faults of the machinery count for so long.
inline constexpr hours kRestartWindow{1};

// A1: deadline of a unary call, and of Wait calls; mtctl's connection, after how much of it a word
// says so, and request deadlines.
inline constexpr seconds kUnaryLimit{60};
inline constexpr seconds kWaitLimit{300};
inline constexpr seconds kClientDial{10};
inline constexpr seconds kClientDialTold{2};
inline constexpr seconds kClientRequest{5};

// A2: largest message, largest job spec, largest text that a job of kind generate or eval writes.
inline constexpr int kMaxMessageBytes = 4 << 20;
inline constexpr int64_t kMaxSpecBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxOutputBytes = int64_t{1} << 20;

// A3: retention of request ids and finished operations, of events, of ended jobs, and of nodes that
// are lost or dead and hold nothing.
inline constexpr hours kRequestIdsKept = days{7};
inline constexpr hours kEventsKept = days{30};
inline constexpr hours kJobsKept = days{90};
inline constexpr hours kGhostNodesKept = days{30};

// A4: messages queued for one stream; beyond it they are dropped and a `dropped` marker is sent.
inline constexpr size_t kStreamQueue = 1'024;

// A5: interval at which a commit is tried again while the state disk is full.
inline constexpr seconds kStoreRetry{1};

// T4: how far the wall clock at a start may be from what the store recorded last; for how long one
// that is farther off is doubted; how often the time is recorded.
inline constexpr hours kWallJump{6};
inline constexpr hours kWallDoubt{1};
inline constexpr seconds kWallNoted{60};

// T5: the most steps that a profile traces.
inline constexpr int64_t kMostProfileSteps = 20;

// T6: of what the ranks of a job that trains write for somebody: the most texts at once, and bytes
// of prompts and stop strings; how long the next step waits for them.
inline constexpr int64_t kMostDecodedTexts = 64;
inline constexpr int64_t kMaxDecodeBytes = int64_t{256} << 10;
inline constexpr seconds kDecodeLimit{60};

// T1: shortest interval between live metrics.
inline constexpr milliseconds kLiveMetricsInterval{100};

}  // namespace mt::control
