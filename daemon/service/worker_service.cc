// The service Worker: its Session is one bidirectional stream per worker. A message is read only
// after the previous one was handled, so a worker cannot flood the core; outgoing messages are
// queued within a bound (A4), beyond which the session ends.
#include <deque>
#include <memory>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "common/base/mutex.h"
#include "common/control/numbers.h"
#include "common/rpc/grpc_status.h"
#include "daemon/service/core_loop.h"
#include "daemon/service/user_services.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/worker.grpc.pb.h"

namespace mt::daemon {
namespace {

class SessionReactor;

// One session's stream as the core sees it. The reactor (on gRPC's threads) and the core share it;
// the reactor may be gone first. Thread-safe.
class SessionLink final : public WorkerLink {
 public:
  explicit SessionLink(SessionReactor* reactor) : reactor_(reactor) {}
  void Send(const v1::CoordinatorMessage& message) override;
  void Close(const Status& status) override;

  // --- Called by the reactor, and ReadNext also by the core.
  void ReadNext();
  void Written(bool ok);
  // The reactor is going away: no call into it follows.
  void Detach();

 private:
  void WriteNext() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const Status& status) EXCLUSIVE_LOCKS_REQUIRED(mu_);

  base::Mutex mu_;
  SessionReactor* reactor_ GUARDED_BY(mu_);
  std::deque<v1::CoordinatorMessage> queue_ GUARDED_BY(mu_);  // the front is being written
  bool writing_ GUARDED_BY(mu_) = false;
  bool ending_ GUARDED_BY(mu_) = false;
  bool finished_ GUARDED_BY(mu_) = false;
  Status end_ GUARDED_BY(mu_);
};

class SessionReactor final
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  SessionReactor(CoreLoop* loop, grpc::CallbackServerContext* context)
      : loop_(loop),
        context_(context),
        link_(std::make_shared<SessionLink>(this)),
        id_(std::make_shared<SessionId>(0)) {
    loop_->Post([link = link_, id = id_](Core& core) {
      *id = core.sessions().Open(link);
      link->ReadNext();
    });
  }

  void Read() { StartRead(&incoming_); }
  void Write(const v1::CoordinatorMessage* message) { StartWrite(message); }
  void End(const Status& status) { Finish(rpc::ToGrpc(status, context_)); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      link_->Close(OkStatus());
      return;
    }
    auto message = std::make_shared<v1::WorkerMessage>(std::move(incoming_));
    loop_->Post([link = link_, id = id_, message](Core& core) {
      core.sessions().OnMessage(*id, *message);
      link->ReadNext();
    });
  }
  void OnWriteDone(bool ok) override { link_->Written(ok); }
  void OnCancel() override {
    link_->Close(base::Error(absl::StatusCode::kCancelled, "the worker has left"));
  }
  void OnDone() override {
    link_->Detach();
    loop_->Post([id = id_](Core& core) { core.sessions().OnClosed(*id); });
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  }

 private:
  CoreLoop* loop_;
  grpc::CallbackServerContext* context_;
  std::shared_ptr<SessionLink> link_;
  std::shared_ptr<SessionId> id_;  // used on the core's thread only
  v1::WorkerMessage incoming_;
};

void SessionLink::Send(const v1::CoordinatorMessage& message) {
  const base::MutexLock lock(&mu_);
  if (ending_) return;
  if (queue_.size() >= control::kStreamQueue) {
    End(rpc::WithReason(base::Error(absl::StatusCode::kResourceExhausted,
                                    "the worker reads too slowly; connect again"),
                        rpc::reason::kTooSlow));
    return;
  }
  queue_.push_back(message);
  if (!writing_) WriteNext();
}

void SessionLink::Close(const Status& status) {
  const base::MutexLock lock(&mu_);
  End(status);
}

void SessionLink::ReadNext() {
  const base::MutexLock lock(&mu_);
  if (reactor_ != nullptr && !finished_) reactor_->Read();
}

void SessionLink::WriteNext() {
  if (reactor_ == nullptr || finished_) return;
  writing_ = true;
  reactor_->Write(&queue_.front());
}

void SessionLink::Written(bool ok) {
  const base::MutexLock lock(&mu_);
  writing_ = false;
  queue_.pop_front();
  if (!ok) {
    End(base::Error(absl::StatusCode::kCancelled, "the worker has left"));
  } else if (!ending_ && !queue_.empty()) {
    WriteNext();
  }
  if (ending_ && !finished_ && reactor_ != nullptr) {
    finished_ = true;
    reactor_->End(end_);
  }
}

void SessionLink::End(const Status& status) {
  if (std::exchange(ending_, true)) return;
  end_ = status;
  // A write in flight has to finish first; Written then ends the stream.
  if (writing_ || reactor_ == nullptr) return;
  finished_ = true;
  reactor_->End(end_);
}

void SessionLink::Detach() {
  const base::MutexLock lock(&mu_);
  reactor_ = nullptr;
}

class WorkerService final : public v1::Worker::CallbackService {
 public:
  explicit WorkerService(CoreLoop* loop) : loop_(loop) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override {
    return new SessionReactor(loop_, context);
  }

 private:
  CoreLoop* loop_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerService(CoreLoop* loop) {
  return std::make_unique<WorkerService>(loop);
}

}  // namespace mt::daemon
