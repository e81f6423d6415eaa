// gRPC's callback API: Stream is the reactor of one call, shared by gRPC and the link.
#include "worker/node/agent/grpc_coordinator_link.h"

#include <atomic>
#include <deque>
#include <utility>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "megatrain/v1/worker.grpc.pb.h"

namespace mt::node {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::Worker;
using megatrain::v1::WorkerMessage;

struct GrpcCoordinatorLink::Channel {
  rpc::Endpoint endpoint;
  std::unique_ptr<Worker::Stub> stub;
};

// One call. A read is pending until the stream ends; writes are taken from a queue one at a time. A
// hold (grpc::ClientBidiReactor::AddHold) permits writes to start outside of gRPC's callbacks; it
// is removed after the last read, and nothing is written from then on.
class GrpcCoordinatorLink::Stream final
    : public grpc::ClientBidiReactor<WorkerMessage, CoordinatorMessage> {
 public:
  using MessageTask = std::function<void(std::shared_ptr<CoordinatorMessage>)>;
  using ClosedTask = std::function<void(const Status&)>;

  Stream(MessageTask on_message, ClosedTask on_closed)
      : on_message_(std::move(on_message)), on_closed_(std::move(on_closed)) {}

  void Begin(Worker::Stub* stub, std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    stub->async()->Session(&context_, this);
    AddHold();
    incoming_ = std::make_shared<CoordinatorMessage>();
    StartRead(incoming_.get());
    StartCall();
  }

  void Write(const WorkerMessage& message) {
    base::MutexLock lock(&mu_);
    if (closed_) return;
    queued_bytes_ += static_cast<int64_t>(message.ByteSizeLong());
    queue_.push_back(message);
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  int64_t queued_bytes() const { return queued_bytes_; }
  void Cancel() { context_.TryCancel(); }

  void WaitDone() {
    base::MutexLock lock(&mu_);
    while (!done_) done_changed_.Wait(&mu_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        base::MutexLock lock(&mu_);
        closed_ = true;
      }
      RemoveHold();
      return;
    }
    on_message_(std::exchange(incoming_, std::make_shared<CoordinatorMessage>()));
    StartRead(incoming_.get());
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(&mu_);
    queued_bytes_ -= static_cast<int64_t>(queue_.front().ByteSizeLong());
    queue_.pop_front();
    if (!ok) closed_ = true;  // the pending read will fail and end the stream
    if (!closed_ && !queue_.empty()) StartWrite(&queue_.front());
  }

  void OnDone(const grpc::Status& status) override {
    on_closed_(status.ok() ? base::Unavailable("the coordinator ended the session")
                           : rpc::FromGrpc(status, context_));
    const std::shared_ptr<Stream> self = std::move(self_);  // alive until the lock is released
    base::MutexLock lock(&mu_);
    done_ = true;
    done_changed_.NotifyAll();
  }

  const MessageTask on_message_;
  const ClosedTask on_closed_;
  grpc::ClientContext context_;
  std::shared_ptr<CoordinatorMessage> incoming_;
  std::shared_ptr<Stream> self_;  // reference on behalf of gRPC
  std::atomic<int64_t> queued_bytes_ = 0;
  base::Mutex mu_;
  base::CondVar done_changed_;
  std::deque<WorkerMessage> queue_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
  bool done_ GUARDED_BY(mu_) = false;
};

GrpcCoordinatorLink::GrpcCoordinatorLink(EventLoop* loop, const rpc::Endpoint& coordinator)
    : loop_(loop), channel_(std::make_unique<Channel>()) {
  channel_->endpoint = coordinator;
  channel_->stub = Worker::NewStub(rpc::MakeChannel(coordinator));
}

GrpcCoordinatorLink::~GrpcCoordinatorLink() {
  if (!stream_) return;
  stream_->Cancel();
  stream_->WaitDone();
}

void GrpcCoordinatorLink::Open() {
  stream_ = std::make_shared<Stream>(
      [this](std::shared_ptr<CoordinatorMessage> message) {
        loop_->Post([this, message = std::move(message)] { listener_->OnMessage(*message); });
      },
      [this](const Status& why) {
        loop_->Post([this, why] {
          // OnDone may still be running its last lines: wait, since ~Stream does not.
          const std::shared_ptr<Stream> closed = std::move(stream_);
          closed->WaitDone();
          listener_->OnClosed(why);
        });
      });
  stream_->Begin(channel_->stub.get(), stream_);
}

void GrpcCoordinatorLink::Send(const WorkerMessage& message) {
  if (stream_) stream_->Write(message);
}

int64_t GrpcCoordinatorLink::QueuedBytes() const { return stream_ ? stream_->queued_bytes() : 0; }

void GrpcCoordinatorLink::Close() {
  if (stream_) stream_->Cancel();
}

}  // namespace mt::node
