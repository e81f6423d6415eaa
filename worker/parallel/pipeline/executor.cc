// For each action: wait for its input, wait until its output buffer has been sent, compute, send,
// release the input's slot. A chunk without layers passes its input on in the same buffer, which is
// released only after it has been sent.
#include "worker/parallel/pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "common/base/math.h"
#include "worker/parallel/schedule/rendezvous.h"

namespace mt::parallel {
namespace {

// True for a chunk without layers, whose input and output are one buffer.
bool SameBuffer(const kernels::Tensor& left, const kernels::Tensor& right) {
  return left.data == right.data;
}

std::vector<Parcel> ParcelsIn(const Schedule& schedule, int stage, ActionKind kind,
                              ChunkWork* work) {
  std::vector<Parcel> parcels;
  for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
    if (action.kind != kind || !action.receives) continue;
    parcels.push_back({.chunk = action.chunk,
                       .slot = action.slot,
                       .tensor = kind == ActionKind::kForward
                                     ? work->Input(action.chunk, action.slot)
                                     : work->OutputGrad(action.chunk, action.slot)});
  }
  return parcels;
}

int SlotsOf(const Schedule& schedule, int stage) {
  const std::vector<int>& slots = schedule.slots[static_cast<size_t>(stage)];
  return std::accumulate(slots.begin(), slots.end(), 0);
}

}  // namespace

int LanesOf(const Schedule& schedule, int sender_stage, ActionKind kind) {
  int ahead = 0;
  if (schedule.forward_only) {
    ahead = 2 * schedule.stages;
  } else if (kind == ActionKind::kForward) {
    ahead = SlotsOf(schedule, sender_stage);
  } else {
    ahead = SlotsOf(schedule, schedule.previous_stage(sender_stage));
  }
  return static_cast<int>(base::CeilDiv(ahead, comm::ProcessGroup::kSendWindow));
}

const Executor::WaitFor Executor::kActivationIn = {&PassTimes::activation_in, CommUse::kActivation,
                                                   SpanKind::kWait};
const Executor::WaitFor Executor::kActivationOut = {&PassTimes::activation_out,
                                                    CommUse::kActivation, SpanKind::kWaitSent};
const Executor::WaitFor Executor::kGradientIn = {&PassTimes::gradient_in, CommUse::kGradient,
                                                 SpanKind::kWait};
const Executor::WaitFor Executor::kGradientOut = {&PassTimes::gradient_out, CommUse::kGradient,
                                                  SpanKind::kWaitSent};

Executor::Executor(Args args)
    : args_(std::move(args)), links_(args_.links == nullptr ? &no_links_ : args_.links) {
  CHECK(args_.stream != nullptr);
  if (links_->activation_out != nullptr)
    links_->activation_out->TimeWith(args_.spans, CommUse::kActivation);
  if (links_->gradient_out != nullptr)
    links_->gradient_out->TimeWith(args_.spans, CommUse::kGradient);
}

template <class Call>
Status Executor::Timed(double* seconds, const Call& call) {
  const base::MonotonicTime begin = args_.clock->Now();
  Status status = call();
  *seconds += std::chrono::duration<double>(args_.clock->Now() - begin).count();
  return status;
}

template <class Call>
Status Executor::Wait(const WaitFor& what, const Call& call) {
  if (args_.on_wait) args_.on_wait(/*begin=*/true);
  Status status = Timed(&(times_.*what.seconds), [&] {
    return TimeWait(args_.spans, *args_.stream, what.use, call, what.kind);
  });
  if (args_.on_wait) args_.on_wait(/*begin=*/false);
  return status;
}

Status Executor::Run(const Schedule& schedule) {
  RETURN_IF_ERROR(failure());
  CHECK(schedule.stages == 1 || args_.links != nullptr) << "a stage of several without links";
  times_ = {};
  const base::MonotonicTime begin = args_.clock->Now();
  Status status = Begin(schedule);
  if (status.ok()) status = RunActions(schedule);
  times_.total = std::chrono::duration<double>(args_.clock->Now() - begin).count();
  if (!status.ok()) Fail(status);
  return status;
}

Status Executor::Begin(const Schedule& schedule) {
  const int stage = args_.stage;
  kernels::Stream& stream = *args_.stream;
  const int64_t id = int64_t{2} * schedule.microbatches + (schedule.forward_only ? 1 : 0);
  const auto pass = [&](int sender_stage, ActionKind kind) {
    return Pass{.lanes = LanesOf(schedule, sender_stage, kind), .id = id};
  };
  const auto begins = [](const auto& link) { return link != nullptr && link->BeginsReceives(); };
  if (begins(links_->activation_in) || begins(links_->gradient_in)) {
    int& ahead = ahead_of_pass_[id];
    if (ahead == 0) ahead = ReceivesAhead(schedule);
    ahead_ = ahead;
  }
  // Receivers first: a sender may wait for what its receiver says of the pass.
  if (links_->activation_in != nullptr) {
    RETURN_IF_ERROR(links_->activation_in->Begin(
        stream, ParcelsIn(schedule, stage, ActionKind::kForward, args_.work),
        pass(schedule.previous_stage(stage), ActionKind::kForward)));
  }
  if (links_->gradient_in != nullptr) {
    RETURN_IF_ERROR(links_->gradient_in->Begin(
        stream, ParcelsIn(schedule, stage, ActionKind::kBackward, args_.work),
        pass(schedule.next_stage(stage), ActionKind::kBackward)));
  }
  if (links_->activation_out != nullptr) {
    RETURN_IF_ERROR(links_->activation_out->Begin(stream, pass(stage, ActionKind::kForward)));
  }
  if (links_->gradient_out != nullptr) {
    RETURN_IF_ERROR(links_->gradient_out->Begin(stream, pass(stage, ActionKind::kBackward)));
  }
  return OkStatus();
}

Status Executor::RunActions(const Schedule& schedule) {
  const std::vector<Action>& actions = schedule.actions[static_cast<size_t>(args_.stage)];
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    behind_ = std::span(actions).subspan(i + 1);
    Status status = failure();
    if (status.ok()) {
      status = action.kind == ActionKind::kForward ? RunForward(action, schedule.forward_only)
                                                   : RunBackward(action);
    }
    if (status.ok()) continue;
    return base::Annotate(status,
                          fmt::format("stage {}, {}", args_.stage, ActionLabel(schedule, action)));
  }
  if (links_->activation_out != nullptr) {
    RETURN_IF_ERROR(
        Wait(kActivationOut, [&] { return links_->activation_out->WaitAllSent(*args_.stream); }));
  }
  if (links_->gradient_out != nullptr) {
    RETURN_IF_ERROR(
        Wait(kGradientOut, [&] { return links_->gradient_out->WaitAllSent(*args_.stream); }));
  }
  return OkStatus();
}

Status Executor::ExpectNext() {
  const auto next = behind_.first(std::min(behind_.size(), static_cast<size_t>(ahead_)));
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
    const auto count = std::ranges::count_if(
        next, [kind](const Action& action) { return action.kind == kind && action.receives; });
    if (count == 0) continue;
    Receiver& link = kind == ActionKind::kForward ? *links_->activation_in : *links_->gradient_in;
    RETURN_IF_ERROR(link.Expect(*args_.stream, static_cast<int>(count)));
  }
  return OkStatus();
}

Status Executor::RunForward(const Action& action, bool forward_only) {
  const int chunk = action.chunk;
  const int slot = action.slot;
  ChunkWork* work = args_.work;
  if (action.receives) {
    RETURN_IF_ERROR(Wait(kActivationIn, [&] {
      return links_->activation_in->WaitReady(*args_.stream, chunk, slot);
    }));
  }
  const auto wait_sent = [&] {
    return links_->activation_out->WaitSent(*args_.stream, chunk, slot);
  };
  if (action.sends) RETURN_IF_ERROR(Wait(kActivationOut, wait_sent));
  if (!action.sends && links_->gradient_out != nullptr && work->ForwardWritesInputGrad(chunk)) {
    RETURN_IF_ERROR(Wait(
        kGradientOut, [&] { return links_->gradient_out->WaitSent(*args_.stream, chunk, slot); }));
  }
  RETURN_IF_ERROR(ExpectNext());
  RETURN_IF_ERROR(Timed(&times_.forward, [&] { return work->Forward(action); }));
  if (action.sends) {
    RETURN_IF_ERROR(Wait(kActivationOut, [&] {
      return links_->activation_out->Send(*args_.stream, {chunk, slot, work->Output(chunk, slot)});
    }));
  }
  if (!forward_only || !action.receives) return OkStatus();
  if (action.sends && SameBuffer(work->Input(chunk, slot), work->Output(chunk, slot))) {
    RETURN_IF_ERROR(Wait(kActivationOut, wait_sent));
  }
  links_->activation_in->Release(*args_.stream, chunk, slot);
  return OkStatus();
}

Status Executor::RunBackward(const Action& action) {
  const int chunk = action.chunk;
  const int slot = action.slot;
  ChunkWork* work = args_.work;
  if (action.receives) {
    RETURN_IF_ERROR(Wait(
        kGradientIn, [&] { return links_->gradient_in->WaitReady(*args_.stream, chunk, slot); }));
  }
  // An input that was sent on as it came: the slot's next parcel may overwrite it. (The gradient
  // follows from the activation, which has arrived, but may not be known to have left.)
  if (action.receives && action.sends &&
      SameBuffer(work->Input(chunk, slot), work->Output(chunk, slot))) {
    RETURN_IF_ERROR(Wait(kActivationOut, [&] {
      return links_->activation_out->WaitSent(*args_.stream, chunk, slot);
    }));
  }
  const auto wait_sent = [&] { return links_->gradient_out->WaitSent(*args_.stream, chunk, slot); };
  if (action.sends) RETURN_IF_ERROR(Wait(kGradientOut, wait_sent));
  RETURN_IF_ERROR(ExpectNext());
  RETURN_IF_ERROR(Timed(&times_.backward, [&] { return work->Backward(action); }));
  if (action.sends) {
    links_->activation_in->Release(*args_.stream, chunk, slot);
    RETURN_IF_ERROR(Wait(kGradientOut, [&] {
      return links_->gradient_out->Send(*args_.stream, {chunk, slot, work->InputGrad(chunk, slot)});
    }));
  }
  if (!action.receives) return OkStatus();
  if (action.sends && SameBuffer(work->InputGrad(chunk, slot), work->OutputGrad(chunk, slot))) {
    RETURN_IF_ERROR(Wait(kGradientOut, wait_sent));
  }
  links_->gradient_in->Release(*args_.stream, chunk, slot);
  return OkStatus();
}

void Executor::Abort(std::string_view reason) {
  Fail(base::Error(absl::StatusCode::kAborted, "{}", reason));
}

void Executor::Fail(const Status& why) {
  {
    base::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = why;
  }
  links_->Abort(base::ToStd(why.message()));
}

Status Executor::failure() const {
  base::MutexLock lock(&mu_);
  return failure_;
}

}  // namespace mt::parallel
