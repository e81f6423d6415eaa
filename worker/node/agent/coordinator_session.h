// The worker's session with the coordinator: registers, sends heartbeats (control-plane L1),
// reconnects with backoff (L3), keeps reports until the coordinator has acknowledged them and sends
// them again after a reconnect. Loop thread only; no call blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "common/base/clock.h"
#include "common/control/numbers.h"
#include "worker/node/agent/coordinator_link.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/outbox/outbox.h"

namespace megatrain::v1 {
class Register;
class Registered;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::node {

// Defaults come from the one table of numbers (common/control/numbers.h); tests replace them.
struct SessionLimits {
  // L1, until the coordinator tells its own. A session without an acknowledgement for
  // heartbeat_lost is closed and opened again.
  std::chrono::milliseconds heartbeat_interval = control::kHeartbeatInterval;
  std::chrono::milliseconds heartbeat_lost = control::kWorkerLostAfter;
  // L3: the n-th attempt waits first * growth^n, at most cap, +- jitter (a share). attempt_timeout
  // limits the time until the coordinator answers the registration.
  std::chrono::milliseconds backoff_first = control::kReconnectFirst;
  double backoff_growth = control::kReconnectGrowth;
  double backoff_jitter = control::kReconnectJitter;
  std::chrono::milliseconds backoff_cap = control::kReconnectCap;
  std::chrono::milliseconds attempt_timeout = control::kConnectAttempt;
  // T1: step reports are sent at most this often.
  std::chrono::milliseconds steps_interval = control::kLiveMetricsInterval;
  // Bound on steps kept for an acknowledgement; beyond it every second one of the older half is
  // dropped.
  int64_t max_unacked_steps = 65536;
};

class CoordinatorSession final : private CoordinatorLink::Listener {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // Fills in the registration; called on every attempt to connect.
    virtual void FillRegister(megatrain::v1::Register* message) = 0;
    // The coordinator answers the registration. Unless OK the session is closed before anything
    // else of it is heard, and tried again later.
    virtual Status CheckRegistered(const megatrain::v1::Registered& registered) = 0;
    // An attempt or a session was ended with this.
    virtual void OnSessionClosed(const Status& why) = 0;
    // What this node holds now; sent with every heartbeat.
    virtual uint64_t HeldDigest() const = 0;
    // The coordinator has answered; unacknowledged reports were sent again.
    virtual void OnRegistered() = 0;
    // The coordinator has given this node a secret (Registered.node_secret); after OnRegistered.
    virtual void OnSecretGiven(const std::string& secret, int64_t generation) = 0;
    // A registered session has ended; the next attempt is scheduled.
    virtual void OnDisconnected() = 0;
    // The newest heartbeat was answered after this time.
    virtual void OnHeartbeatAnswered(std::chrono::nanoseconds round_trip) = 0;
    // Receives every message but registered, heartbeat_ack and report_ack.
    virtual void OnCoordinatorMessage(const megatrain::v1::CoordinatorMessage& message) = 0;
  };

  CoordinatorSession(EventLoop* loop, const base::Clock* clock, const SessionLimits& limits,
                     CoordinatorLink* link, Listener* listener);
  ~CoordinatorSession() override;

  // Connects, and reconnects until Stop.
  void Start();
  // Reports the gathered steps and closes the session for good.
  void Stop();

  // Sends a report that must arrive: it is kept, and sent again after a reconnect, until the
  // coordinator has it on disk; then `acked` runs.
  void Report(megatrain::v1::WorkerMessage message, Outbox::Acked acked = {});
  // Gathers a step of a job; the steps of one job and epoch are reported together, at most every
  // steps_interval. Only the `acked` of the last step of a report runs; it covers those before it.
  void ReportStep(const std::string& job_uid, int64_t epoch, const megatrain::v1::StepRecord& step,
                  Outbox::Acked acked = {});
  // Reports the steps gathered so far, so that the next report arrives after them.
  void FlushSteps();
  // Sends a message that matters to this connection only; drops it if there is none.
  void SendNow(const megatrain::v1::WorkerMessage& message);

  bool registered() const { return registered_; }
  int64_t QueuedBytes() const { return link_->QueuedBytes(); }
  const Outbox& outbox() const { return outbox_; }

 private:
  void OnMessage(const megatrain::v1::CoordinatorMessage& message) override;
  void OnClosed(const Status& why) override;
  void Connect();
  void LogClosed(const Status& why, bool was_registered);
  void OnRegistered(const megatrain::v1::Registered& registered);
  void BeRegistered(const megatrain::v1::Registered& registered);
  void Beat();
  std::chrono::milliseconds NextBackoff();

  EventLoop* loop_;
  const base::Clock* clock_;
  const SessionLimits limits_;
  CoordinatorLink* link_;
  Listener* listener_;
  Outbox outbox_;
  std::unique_ptr<megatrain::v1::WorkerMessage> pending_steps_;  // of one job; null: none
  Outbox::Acked pending_steps_acked_;
  bool stopped_ = false;
  bool registered_ = false;
  bool disobeyed_ = false;  // this session is being closed unheard
  int failures_ = 0;        // failed attempts since the last registration
  std::string
      refusal_;  // why the coordinator has refused this worker, as logged; empty: it has not
  int64_t beat_ = 0;
  std::string newest_command_;  // id of the newest command of this connection
  base::MonotonicTime beat_sent_;
  base::MonotonicTime last_ack_;
  std::chrono::milliseconds heartbeat_interval_;
  std::chrono::milliseconds heartbeat_lost_;
  EventLoop::TimerId attempt_timer_ = EventLoop::kNoTimer;  // limits or starts an attempt
  EventLoop::TimerId beat_timer_ = EventLoop::kNoTimer;
  EventLoop::TimerId steps_timer_ = EventLoop::kNoTimer;
  std::minstd_rand random_;
};

}  // namespace mt::node
