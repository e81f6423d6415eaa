// The numbers of the agent, from the one table (common/rpc/control_numbers.h); tests replace them.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/rpc/control_numbers.h"
#include "worker/agent/progress_watch.h"

namespace mt::agent {

struct Limits {
  // L1; without an acknowledgement for heartbeat_lost the session is opened anew.
  std::chrono::milliseconds heartbeat_interval = rpc::kHeartbeatInterval;
  std::chrono::milliseconds heartbeat_lost = rpc::kWorkerLostAfter;
  // L3: the n-th attempt waits first * growth^n, at most cap, +- jitter; attempt_timeout: until the
  // coordinator's answer.
  std::chrono::milliseconds backoff_first = rpc::kReconnectFirst;
  double backoff_growth = rpc::kReconnectGrowth;
  double backoff_jitter = rpc::kReconnectJitter;
  std::chrono::milliseconds backoff_cap = rpc::kReconnectCap;
  std::chrono::milliseconds attempt_timeout = rpc::kConnectAttempt;
  // P1, P2: how long ranks may stand still; how often that is looked at.
  ProgressLimits progress;
  std::chrono::milliseconds progress_look = rpc::kProgressLook;
  // P3: ranks that were told to exit are killed after this.
  std::chrono::milliseconds abort_kill = rpc::kAbortKill;
  // P4: GPUs whose memory is not free so long after their ranks' end are out of order; looked at so
  // often until then, and more seldom from then on.
  std::chrono::milliseconds device_free = rpc::kDeviceFreeAfterExit;
  std::chrono::milliseconds device_probe = rpc::kDeviceProbeInterval;
  std::chrono::milliseconds device_probe_out_of_order{10'000};
  // How often is looked for GPUs that came after the start.
  std::chrono::milliseconds gpu_survey{300'000};
  // T1: steps travel at most this often.
  std::chrono::milliseconds steps_interval = rpc::kLiveMetricsInterval;
  // Steps kept unacknowledged; beyond it every second one of the older half is dropped.
  int64_t max_unacked_steps = 65536;
  // Log tails: how often a file is looked at; a slow coordinator pauses them beyond this.
  std::chrono::milliseconds log_poll{200};
  int64_t max_queued_log_bytes = 1 << 20;
  int fault_log_lines = 20;  // sent with the report of a faulted rank
};

}  // namespace mt::agent
