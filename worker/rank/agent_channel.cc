#include "worker/rank/agent_channel.h"

#include <algorithm>
#include <deque>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/control_numbers.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "megatrain/v1/rank.grpc.pb.h"

namespace mt::rank {

using megatrain::v1::AgentMessage;
using megatrain::v1::RankAssignment;
using megatrain::v1::RankChannel;
using megatrain::v1::RankMessage;
using Stream = grpc::ClientReaderWriter<RankMessage, AgentMessage>;

namespace {

constexpr size_t kMaxQueuedSteps = 65536;

base::MonotonicTime Now() { return base::Clock::Real()->Now(); }

}  // namespace

struct AgentChannel::State {
  std::unique_ptr<RankChannel::Stub> stub;
  base::Mutex mu;
  base::CondVar changed;
  std::deque<RankMessage> queue GUARDED_BY(mu);
  std::shared_ptr<grpc::ClientContext> context GUARDED_BY(mu);
  std::shared_ptr<Stream> stream GUARDED_BY(mu);
  bool connected GUARDED_BY(mu) = false;  // hello was answered
  bool writing GUARDED_BY(mu) = false;    // the writer is inside the stream
  bool closing GUARDED_BY(mu) = false;
  bool reader_done GUARDED_BY(mu) = false;
  std::unique_ptr<RankAssignment> assignment GUARDED_BY(mu);
  Status refusal GUARDED_BY(mu);
  int64_t dropped_steps GUARDED_BY(mu) = 0;
  std::thread reader;
  std::thread writer;
};

AgentChannel::AgentChannel(Config config, Handler handler)
    : config_(std::move(config)), handler_(std::move(handler)), state_(std::make_unique<State>()) {
  const auto endpoint = rpc::ParseEndpoint(config_.socket);
  CHECK(endpoint.ok()) << base::Message(endpoint.status());
  state_->stub = RankChannel::NewStub(rpc::MakeChannel(*endpoint));
  state_->reader = std::thread([this] { ReadLoop(); });
  state_->writer = std::thread([this] { WriteLoop(); });
}

AgentChannel::~AgentChannel() { Close(std::chrono::milliseconds(0)); }

Status AgentChannel::WaitAssigned(std::chrono::milliseconds limit, RankAssignment* out) {
  const base::MonotonicTime deadline = Now() + limit;
  base::MutexLock lock(&state_->mu);
  while (!state_->assignment && state_->refusal.ok()) {
    if (!state_->changed.WaitUntil(&state_->mu, deadline) && Now() >= deadline) {
      return base::Unavailable("the agent at {} does not answer", config_.socket);
    }
  }
  RETURN_IF_ERROR(state_->refusal);
  *out = *state_->assignment;
  return OkStatus();
}

void AgentChannel::Send(RankMessage message) {
  base::MutexLock lock(&state_->mu);
  if (message.has_step() && state_->queue.size() >= kMaxQueuedSteps) {
    if (state_->dropped_steps++ == 0) log::Warn("the agent is away: steps are dropped");
    return;
  }
  state_->queue.push_back(std::move(message));
  state_->changed.NotifyAll();
}

void AgentChannel::NoteProgress(int64_t step) {
  step_ = step;
  ++progress_;
}

void AgentChannel::WriteLoop() {
  ::pthread_setname_np(::pthread_self(), "mt-agent-write");
  State& state = *state_;
  base::MonotonicTime next_beat = Now();
  base::MutexLock lock(&state.mu);
  for (;;) {
    if (state.closing && (state.queue.empty() || !state.connected)) break;
    const bool beat = state.queue.empty();
    if (!state.connected || (beat && Now() < next_beat)) {
      const auto wake = state.connected ? next_beat : Now() + rpc::kRankBeatInterval;
      state.changed.WaitUntil(&state.mu, wake);
      continue;
    }
    RankMessage message;
    if (beat) {
      message.mutable_beat()->set_progress(progress_);
      message.mutable_beat()->set_step(step_);
      next_beat = Now() + rpc::kRankBeatInterval;
    }
    // Only this thread removes from the queue, so its front stays where it is.
    const RankMessage& next = beat ? message : state.queue.front();
    const std::shared_ptr<Stream> stream = state.stream;
    state.writing = true;
    state.mu.Unlock();
    const bool ok = stream->Write(next);
    state.mu.Lock();
    state.writing = false;
    state.changed.NotifyAll();
    if (!ok) state.connected = false;
    if (ok && !beat) state.queue.pop_front();
  }
  if (state.connected) state.stream->WritesDone();
}

bool AgentChannel::ReadOneStream() {
  State& state = *state_;
  const auto context = std::make_shared<grpc::ClientContext>();
  std::shared_ptr<Stream> stream = state.stub->Attach(context.get());
  {
    base::MutexLock lock(&state.mu);
    state.context = context;
    state.stream = stream;
  }
  RankMessage hello;
  hello.mutable_hello()->set_job_uid(config_.job_uid);
  hello.mutable_hello()->set_epoch(config_.epoch);
  hello.mutable_hello()->set_rank(config_.rank);
  hello.mutable_hello()->set_token(config_.token);
  hello.mutable_hello()->set_pid(::getpid());
  stream->Write(hello);
  AgentMessage message;
  while (stream->Read(&message)) {
    if (!message.has_assignment()) {
      handler_(message);
      continue;
    }
    base::MutexLock lock(&state.mu);
    state.assignment = std::make_unique<RankAssignment>(message.assignment());
    state.connected = true;
    state.changed.NotifyAll();
  }
  {
    base::MutexLock lock(&state.mu);
    state.connected = false;
    while (state.writing) state.changed.Wait(&state.mu);
  }
  const Status status = rpc::FromGrpc(stream->Finish(), *context);
  if (absl::IsPermissionDenied(status)) {
    base::MutexLock lock(&state.mu);
    state.refusal =
        base::FailedPrecondition("the agent refuses this rank: {}", base::Message(status));
    state.changed.NotifyAll();
    return false;
  }
  return true;
}

void AgentChannel::ReadLoop() {
  ::pthread_setname_np(::pthread_self(), "mt-agent-read");
  State& state = *state_;
  for (bool wanted = true; wanted;) {
    wanted = ReadOneStream();
    base::MutexLock lock(&state.mu);
    const base::MonotonicTime retry_at = Now() + rpc::kReconnectFirst;
    while (wanted && !state.closing && Now() < retry_at) {
      state.changed.WaitUntil(&state.mu, retry_at);
    }
    wanted = wanted && !state.closing;
  }
  base::MutexLock lock(&state.mu);
  state.reader_done = true;
  state.changed.NotifyAll();
}

void AgentChannel::Close(std::chrono::milliseconds limit) {
  State& state = *state_;
  if (!state.reader.joinable()) return;
  {
    const base::MonotonicTime deadline = Now() + limit;
    base::MutexLock lock(&state.mu);
    state.closing = true;
    state.changed.NotifyAll();
    while (!state.reader_done && Now() < deadline) state.changed.WaitUntil(&state.mu, deadline);
    if (!state.reader_done && state.context) state.context->TryCancel();
  }
  state.writer.join();
  state.reader.join();
}

}  // namespace mt::rank
