// The worker's standing with the coordinator: registers, beats (L1), reconnects (L3), keeps reports
// until they are acknowledged and sends them again after a reconnect. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "common/base/clock.h"
#include "common/rpc/control_numbers.h"
#include "worker/node/agent/coordinator_link.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/outbox/outbox.h"

namespace megatrain::v1 {
class Register;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::node {

// From the one table of numbers (common/rpc/control_numbers.h); tests replace them.
struct SessionLimits {
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
  // T1: steps travel at most this often.
  std::chrono::milliseconds steps_interval = rpc::kLiveMetricsInterval;
  // Steps kept unacknowledged; beyond it every second one of the older half is dropped.
  int64_t max_unacked_steps = 65536;
};

class CoordinatorSession final : private CoordinatorLink::Listener {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void FillRegister(megatrain::v1::Register* message) = 0;
    // The coordinator answered; unacknowledged reports are on their way again.
    virtual void OnRegistered() = 0;
    virtual void OnDisconnected() = 0;
    virtual void OnHeartbeatAnswered(std::chrono::nanoseconds round_trip) = 0;
    // All but registered, heartbeat_ack and report_ack.
    virtual void OnCoordinatorMessage(const megatrain::v1::CoordinatorMessage& message) = 0;
  };

  CoordinatorSession(EventLoop* loop, const base::Clock* clock, const SessionLimits& limits,
                     CoordinatorLink* link, Listener* listener);
  ~CoordinatorSession() override;

  void Start();
  // Closes for good.
  void Stop();

  // A report that must arrive; `acked` runs once it is on the coordinator's disk.
  void Report(megatrain::v1::WorkerMessage message, Outbox::Acked acked = {});
  // A step of a job: gathered, then reported at most every steps_interval. Of the steps of one
  // report only the last one's `acked` runs: it speaks for those before it.
  void ReportStep(const std::string& job_uid, int64_t epoch, const megatrain::v1::StepRecord& step,
                  Outbox::Acked acked = {});
  // Reports the steps gathered so far, so that what is reported next comes after them.
  void FlushSteps();
  // A message of this connection only; dropped where there is none.
  void SendNow(const megatrain::v1::WorkerMessage& message);

  bool registered() const { return registered_; }
  int64_t QueuedBytes() const { return link_->QueuedBytes(); }
  const Outbox& outbox() const { return outbox_; }

 private:
  void OnMessage(const megatrain::v1::CoordinatorMessage& message) override;
  void OnClosed(const Status& why) override;
  void Connect();
  void BeRegistered(std::chrono::milliseconds heartbeat_interval);
  void Beat();
  std::chrono::milliseconds NextBackoff();

  EventLoop* loop_;
  const base::Clock* clock_;
  const SessionLimits limits_;
  CoordinatorLink* link_;
  Listener* listener_;
  Outbox outbox_;
  std::unique_ptr<megatrain::v1::WorkerMessage>
      pending_steps_;  // of one job and epoch; may be null
  Outbox::Acked pending_steps_acked_;
  bool stopped_ = false;
  bool registered_ = false;
  int failures_ = 0;  // attempts since the last registration
  int64_t beat_ = 0;
  base::MonotonicTime beat_sent_;
  base::MonotonicTime last_ack_;
  std::chrono::milliseconds heartbeat_interval_;
  EventLoop::TimerId attempt_timer_ = EventLoop::kNoTimer;  // attempt timeout, or the next attempt
  EventLoop::TimerId beat_timer_ = EventLoop::kNoTimer;
  EventLoop::TimerId steps_timer_ = EventLoop::kNoTimer;
  std::minstd_rand random_;
};

}  // namespace mt::node
