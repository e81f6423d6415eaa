// States: connecting (attempt_timer_ limits it), registered (beat_timer_ beats), waiting for the
// next attempt (attempt_timer_ starts it), stopped.
#include "worker/node/agent/coordinator_session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::Registered;
using megatrain::v1::StepRecord;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;

CoordinatorSession::CoordinatorSession(EventLoop* loop, const base::Clock* clock,
                                       const SessionLimits& limits, CoordinatorLink* link,
                                       Listener* listener)
    : loop_(loop),
      clock_(clock),
      limits_(limits),
      link_(link),
      listener_(listener),
      outbox_(limits.max_unacked_steps),
      heartbeat_interval_(limits.heartbeat_interval),
      heartbeat_lost_(limits.heartbeat_lost),
      random_(std::random_device{}()) {
  link_->SetListener(this);
}

CoordinatorSession::~CoordinatorSession() = default;

void CoordinatorSession::Start() { Connect(); }

void CoordinatorSession::Stop() {
  FlushSteps();
  stopped_ = true;
  registered_ = false;
  loop_->Cancel(attempt_timer_);
  loop_->Cancel(beat_timer_);
  link_->Close();
}

void CoordinatorSession::Connect() {
  disobeyed_ = false;
  link_->Open();
  newest_command_.clear();
  WorkerMessage message;
  listener_->FillRegister(message.mutable_register_());
  message.mutable_register_()->set_lowest_seq(outbox_.lowest_seq());
  message.mutable_register_()->set_newest_seq(outbox_.newest_seq());
  link_->Send(message);
  attempt_timer_ = loop_->After(limits_.attempt_timeout, [this] {
    log::Debug("no answer to the registration");
    link_->Close();
  });
}

void CoordinatorSession::OnRegistered(const Registered& registered) {
  if (!listener_->CheckRegistered(registered).ok()) {
    disobeyed_ = true;
    link_->Close();
    return;
  }
  log::Info("registered with the coordinator",
            {{"coordinator", registered.coordinator_uid()}, {"version", registered.version()}});
  BeRegistered(registered);
  if (!registered.node_secret().empty())
    listener_->OnSecretGiven(registered.node_secret(), registered.generation());
}

void CoordinatorSession::OnMessage(const CoordinatorMessage& message) {
  // What came before the registration's answer, or after it was refused, is nobody's order.
  if (disobeyed_ || (!registered_ && !message.has_registered())) return;
  switch (message.body_case()) {
    case CoordinatorMessage::kRegistered:
      OnRegistered(message.registered());
      break;
    case CoordinatorMessage::kHeartbeatAck:
      last_ack_ = clock_->Now();
      if (message.heartbeat_ack().beat() == beat_) {
        listener_->OnHeartbeatAnswered(last_ack_ - beat_sent_);
      }
      break;
    case CoordinatorMessage::kReportAck:
      outbox_.Acknowledge(message.report_ack().seq());
      break;
    case CoordinatorMessage::BODY_NOT_SET:
      break;
    default:
      if (message.has_command()) newest_command_ = message.command().command_id();
      listener_->OnCoordinatorMessage(message);
  }
}

void CoordinatorSession::BeRegistered(const Registered& registered) {
  loop_->Cancel(attempt_timer_);
  if (registered.heartbeat_interval_ms() > 0)
    heartbeat_interval_ = milliseconds(registered.heartbeat_interval_ms());
  if (registered.lease_ms() > 0) heartbeat_lost_ = milliseconds(registered.lease_ms());
  registered_ = true;
  failures_ = 0;
  refusal_.clear();
  last_ack_ = clock_->Now();
  outbox_.ForEach([this](const WorkerMessage& report) { link_->Send(report); });
  Beat();
  listener_->OnRegistered();
}

void CoordinatorSession::Beat() {
  if (clock_->Now() - last_ack_ > heartbeat_lost_) {
    log::Warn("heartbeats are not answered: connecting anew");
    link_->Close();
    return;
  }
  WorkerMessage message;
  message.mutable_heartbeat()->set_beat(++beat_);
  message.mutable_heartbeat()->set_held_digest(listener_->HeldDigest());
  message.mutable_heartbeat()->set_newest_seq(outbox_.newest_seq());
  message.mutable_heartbeat()->set_newest_command(newest_command_);
  beat_sent_ = clock_->Now();
  link_->Send(message);
  beat_timer_ = loop_->After(heartbeat_interval_, [this] { Beat(); });
}

void CoordinatorSession::OnClosed(const Status& why) {
  loop_->Cancel(attempt_timer_);
  loop_->Cancel(beat_timer_);
  const bool was_registered = std::exchange(registered_, false);
  if (stopped_) return;
  LogClosed(why, was_registered);
  listener_->OnSessionClosed(why);
  attempt_timer_ = loop_->After(NextBackoff(), [this] { Connect(); });
  if (was_registered) listener_->OnDisconnected();
}

// A coordinator that refuses the registration says why with a stable reason; each such answer is
// logged once, since the next attempts have the same one.
void CoordinatorSession::LogClosed(const Status& why, bool was_registered) {
  const std::string text = base::Message(why);
  const bool refused = !was_registered && !rpc::ReasonOf(why).empty();
  if (refused && refusal_ != text) {
    refusal_ = text;
    log::Error("the coordinator refuses this worker; trying again",
               {{"reason", rpc::ReasonOf(why)}, {"why", text}});
  } else if (was_registered || failures_ == 0) {
    log::Warn("no connection to the coordinator, trying again", {{"why", text}});
  } else {
    log::Debug("coordinator cannot be reached", {{"why", text}});
  }
}

milliseconds CoordinatorSession::NextBackoff() {
  const double base_ms = std::min(static_cast<double>(limits_.backoff_first.count()) *
                                      std::pow(limits_.backoff_growth, failures_),
                                  static_cast<double>(limits_.backoff_cap.count()));
  failures_ = std::min(failures_ + 1, 64);
  std::uniform_real_distribution<double> jitter(1 - limits_.backoff_jitter,
                                                1 + limits_.backoff_jitter);
  return milliseconds(static_cast<int64_t>(base_ms * jitter(random_)));
}

void CoordinatorSession::Report(WorkerMessage message, Outbox::Acked acked) {
  const WorkerMessage& kept = outbox_.Add(std::move(message), std::move(acked));
  if (registered_) link_->Send(kept);
}

void CoordinatorSession::ReportStep(const std::string& job_uid, int64_t epoch,
                                    const StepRecord& step, Outbox::Acked acked) {
  if (pending_steps_ &&
      (pending_steps_->steps().job_uid() != job_uid || pending_steps_->steps().epoch() != epoch)) {
    FlushSteps();
  }
  if (!pending_steps_) {
    pending_steps_ = std::make_unique<WorkerMessage>();
    pending_steps_->mutable_steps()->set_job_uid(job_uid);
    pending_steps_->mutable_steps()->set_epoch(epoch);
    steps_timer_ = loop_->After(limits_.steps_interval, [this] { FlushSteps(); });
  }
  *pending_steps_->mutable_steps()->add_steps() = step;
  pending_steps_acked_ = std::move(acked);
}

void CoordinatorSession::FlushSteps() {
  if (!pending_steps_) return;
  loop_->Cancel(steps_timer_);
  const std::unique_ptr<WorkerMessage> steps = std::move(pending_steps_);
  const int64_t thinned = outbox_.thinned_steps();
  Report(std::move(*steps), std::exchange(pending_steps_acked_, {}));
  if (outbox_.thinned_steps() > thinned) {
    log::Warn("steps given up: the coordinator was away too long",
              {{"total", outbox_.thinned_steps()}});
  }
}

void CoordinatorSession::SendNow(const WorkerMessage& message) {
  if (registered_) link_->Send(message);
}

}  // namespace mt::node
