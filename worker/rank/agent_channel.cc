// Reconnection and flow of the stream. The writer alone writes after the hello, outside the lock;
// the reader waits until it has finished before it ends a stream.
#include "worker/rank/agent_channel.h"

#include <algorithm>
#include <chrono>
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
#include "common/control/numbers.h"
#include "common/rpc/channel.h"
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

// How long a wait is at a time: of one in which the process stood still, this much counts.
constexpr std::chrono::milliseconds kLook{250};

base::MonotonicTime Now() { return base::Clock::Real()->Now(); }

}  // namespace

struct AgentChannel::State {
  explicit State(size_t queue_limit) : queue(queue_limit) {}

  std::unique_ptr<RankChannel::Stub> stub;
  base::Mutex mu;
  base::CondVar changed;
  SendQueue queue GUARDED_BY(mu);
  std::shared_ptr<grpc::ClientContext> context GUARDED_BY(mu);
  std::shared_ptr<Stream> stream GUARDED_BY(mu);
  bool connected GUARDED_BY(mu) = false;  // the agent has answered the hello
  bool writing GUARDED_BY(mu) = false;    // the writer is in stream->Write
  bool closing GUARDED_BY(mu) = false;    // Close was called; write no more
  bool reader_done GUARDED_BY(mu) = false;
  bool beat_due GUARDED_BY(mu) = false;  // send a beat now
  std::unique_ptr<RankAssignment> assignment GUARDED_BY(mu);
  Status refusal GUARDED_BY(mu);
  int64_t dropped_steps GUARDED_BY(mu) = 0;
  megatrain::v1::RankState rank_state GUARDED_BY(mu) = megatrain::v1::CONNECTED;
  std::thread reader;
  std::thread writer;
};

AgentChannel::AgentChannel(Config config, Handler handler)
    : config_(std::move(config)),
      handler_(std::move(handler)),
      state_(std::make_unique<State>(config_.queue_limit)) {
  const auto endpoint = rpc::ParseEndpoint(config_.socket);
  CHECK(endpoint.ok()) << base::Message(endpoint.status());
  state_->stub = RankChannel::NewStub(rpc::MakeChannel(*endpoint));
  state_->reader = std::thread([this] { ReadLoop(); });
  state_->writer = std::thread([this] { WriteLoop(); });
}

AgentChannel::~AgentChannel() { Close(std::chrono::milliseconds(0)); }

Status AgentChannel::WaitAssigned(std::chrono::milliseconds limit, RankAssignment* out) {
  // Time in which this process stood still is no silence of its agent.
  std::chrono::nanoseconds waited{0};
  base::MutexLock lock(&state_->mu);
  while (!state_->assignment && state_->refusal.ok()) {
    if (waited >= limit)
      return base::Unavailable("the agent at {} does not answer", config_.socket);
    const base::MonotonicTime begin = Now();
    const std::chrono::nanoseconds look = std::min<std::chrono::nanoseconds>(limit - waited, kLook);
    (void)state_->changed.WaitUntil(&state_->mu, begin + look);
    waited += std::min<std::chrono::nanoseconds>(Now() - begin, look);
  }
  RETURN_IF_ERROR(state_->refusal);
  *out = *state_->assignment;
  return OkStatus();
}

void AgentChannel::Send(RankMessage message) {
  base::MutexLock lock(&state_->mu);
  if (message.has_state()) {
    state_->rank_state = message.state().state();
    // Counters of a held rank do not change any more: they are sent before the state, so that an
    // observer of the state finds them.
    if (message.state().state() == megatrain::v1::HELD) state_->beat_due = true;
    step_ = std::max<int64_t>(step_, message.state().step());
  }
  const int64_t dropped = state_->queue.Push(std::move(message));
  if (dropped > 0) {
    state_->dropped_steps += dropped;
    log::Warn("no acknowledgement for long: older steps are thinned out",
              {{"dropped", dropped}, {"in_all", state_->dropped_steps}});
  }
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
  while (!state.closing) {
    const bool beat = state.beat_due || Now() >= next_beat;
    if (!state.connected || (!beat && state.queue.nothing_to_write())) {
      const auto wake = state.connected ? next_beat : Now() + control::kRankBeatInterval;
      state.changed.WaitUntil(&state.mu, wake);
      continue;
    }
    const std::shared_ptr<Stream> stream = state.stream;
    RankMessage next;
    if (!beat) state.queue.Next(&next);
    if (beat) state.beat_due = false;
    state.writing = true;
    state.mu.Unlock();
    if (beat) next = Beat();
    const bool ok = stream->Write(next);
    state.mu.Lock();
    state.writing = false;
    if (!ok) state.connected = false;
    if (beat) {
      next_beat = Now() + control::kRankBeatInterval;
    } else if (ok) {
      state.queue.Written();
    }
    state.changed.NotifyAll();
  }
  if (state.connected) state.stream->WritesDone();
}

RankMessage AgentChannel::Beat() const {
  RankMessage message;
  auto& beat = *message.mutable_beat();
  beat.set_progress(progress_);
  beat.set_step(step_);
  if (config_.fill_beat) config_.fill_beat(&beat);
  return message;
}

RankMessage AgentChannel::Hello() const {
  RankMessage message;
  auto& hello = *message.mutable_hello();
  hello.set_job_uid(config_.job_uid);
  hello.set_epoch(config_.epoch);
  hello.set_rank(config_.rank);
  hello.set_token(config_.token);
  hello.set_pid(::getpid());
  hello.set_step(step_);
  base::MutexLock lock(&state_->mu);
  hello.set_state(state_->rank_state);
  return message;
}

void AgentChannel::OnMessage(const AgentMessage& message) {
  State& state = *state_;
  if (!message.has_assignment() && !message.has_ack()) return handler_(message);
  bool attached = false;
  {
    base::MutexLock lock(&state.mu);
    if (message.has_ack()) {
      state.queue.Acked(message.ack().seq());
    } else if (!state.connected) {
      // A new agent may not have what its predecessor had received.
      state.queue.Rewind();
      state.assignment = std::make_unique<RankAssignment>(message.assignment());
      state.connected = true;
      attached = true;
    }
    state.changed.NotifyAll();
  }
  if (attached && config_.on_attached) config_.on_attached();
}

bool AgentChannel::ReadOneStream() {
  State& state = *state_;
  const auto context = std::make_shared<grpc::ClientContext>();
  {
    base::MutexLock lock(&state.mu);
    if (state.closing) return false;
    state.context = context;  // from here on Close can cancel this call
  }
  const std::shared_ptr<Stream> stream = state.stub->Attach(context.get());
  {
    base::MutexLock lock(&state.mu);
    state.stream = stream;
  }
  stream->Write(Hello());
  AgentMessage message;
  while (stream->Read(&message)) OnMessage(message);
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
    const base::MonotonicTime retry_at = Now() + control::kReconnectFirst;
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
    while (!state.queue.empty() && !state.reader_done && Now() < deadline) {
      state.changed.WaitUntil(&state.mu, deadline);
    }
    state.closing = true;
    state.changed.NotifyAll();
    while (!state.reader_done && Now() < deadline) state.changed.WaitUntil(&state.mu, deadline);
    if (!state.reader_done && state.context) state.context->TryCancel();
  }
  state.writer.join();
  state.reader.join();
}

std::string AgentChannel::Unacknowledged() const {
  base::MutexLock lock(&state_->mu);
  return state_->queue.Serialize();
}

}  // namespace mt::rank
