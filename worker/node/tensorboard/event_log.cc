// A file has one head; what is known when the head is due depends on whether this agent was there
// when the run began.
#include "worker/node/tensorboard/event_log.h"

#include <utility>

#include "common/tensorboard/event_file.h"
#include "common/tensorboard/scalars.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/types.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

namespace {

// RampOf checks what the coordinator has checked before; no job may end the agent.
std::optional<spec::BatchRamp> RampIn(const megatrain::v1::JobSpec& job) {
  const auto& training = job.training();
  if (!training.has_batch_ramp()) {
    if (training.global_batch_size() < 1) return std::nullopt;
    return spec::BatchRamp::Constant(training.global_batch_size());
  }
  auto ramp = spec::BatchRamp::Parse({.text = training.batch_ramp(),
                                      .global_batch = training.global_batch_size(),
                                      .seq_length = job.model().seq_length()});
  if (!ramp.ok()) return std::nullopt;
  return *std::move(ramp);
}

}  // namespace

EventLog::EventLog(EventFiles* files, const megatrain::v1::JobSpec& job, EventFilePlace place)
    : files_(job.telemetry().tensorboard().empty() ? nullptr : files),
      place_(std::move(place)),
      ramp_(RampIn(job)) {}

EventLog::~EventLog() { Close(); }

void EventLog::OnMessage(const megatrain::v1::RankMessage& message, int64_t now_us) {
  if (files_ == nullptr) return;
  if (message.job_report().has_run_info())
    BeginAt(message.job_report().run_info().resumed_from_step() + 1, now_us);
  if (message.has_step()) {
    const auto& step = message.step();
    BeginAt(step.step(), step.time_us());
    std::optional<int64_t> batch;
    if (ramp_) batch = ramp_->BatchBefore(step.consumed_samples());
    files_->Append(place_,
                   tensorboard::ScalarRecord({.step = step.step(), .time_us = step.time_us()},
                                             tensorboard::ScalarsOf(step, batch)));
  }
  if (message.job_report().has_eval()) {
    const auto& eval = message.job_report().eval();
    // The step itself was acknowledged before: it is in an earlier file.
    BeginAt(eval.step() + 1, eval.time_us());
    files_->Append(place_,
                   tensorboard::ScalarRecord({.step = eval.step(), .time_us = eval.time_us()},
                                             tensorboard::ScalarsOf(eval)));
  }
}

void EventLog::BeginAt(int64_t first_step, int64_t time_us) {
  if (std::exchange(begun_, true)) return;
  files_->Begin(place_, tensorboard::FileHead({.step = first_step, .time_us = time_us}));
}

void EventLog::Close() {
  if (begun_) files_->Close(place_);
  files_ = nullptr;
  begun_ = false;
}

}  // namespace mt::node
