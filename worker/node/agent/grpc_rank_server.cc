// gRPC's callback API: a reactor per call; the service finds it by its link under a lock.
#include "worker/node/agent/grpc_rank_server.h"

#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include <grpcpp/support/server_callback.h>

#include "common/base/mutex.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/server.h"
#include "megatrain/v1/rank.grpc.pb.h"

namespace mt::node {

using megatrain::v1::AgentMessage;
using megatrain::v1::RankChannel;
using megatrain::v1::RankMessage;

class GrpcRankServer::Service final : public RankChannel::CallbackService {
 public:
  explicit Service(EventLoop* loop) : loop_(loop) {}

  grpc::ServerBidiReactor<RankMessage, AgentMessage>* Attach(
      grpc::CallbackServerContext* /*context*/) override;

  Status Listen(const std::string& socket_path) {
    rpc::Endpoint endpoint;
    endpoint.unix_path = socket_path;
    ASSIGN_OR_RETURN(server_, rpc::Server::Start({.listen = endpoint, .services = {this}}));
    return OkStatus();
  }
  void Shutdown() {
    if (server_) server_->Shutdown(std::chrono::milliseconds(0));
  }
  void SetListener(Listener* listener) { listener_ = listener; }

  void Send(LinkId link, const AgentMessage& message);
  void Refuse(LinkId link, const std::string& reason);

 private:
  class Call;

  EventLoop* loop_;
  Listener* listener_ = nullptr;
  base::Mutex mu_;
  LinkId next_link_ GUARDED_BY(mu_) = 1;
  std::map<LinkId, Call*> calls_ GUARDED_BY(mu_);  // OnDone deletes the call
  std::unique_ptr<rpc::Server> server_;
};

// The reactor of one rank's call, owned by gRPC until OnDone. A read is pending until the rank has
// ended the call; writes are taken from a queue one at a time; Finish is called once, and nothing
// is written from then on.
class GrpcRankServer::Service::Call final
    : public grpc::ServerBidiReactor<RankMessage, AgentMessage> {
 public:
  Call(Service* service, LinkId link) : service_(service), link_(link) {
    incoming_ = std::make_shared<RankMessage>();
    StartRead(incoming_.get());
  }

  void Write(const AgentMessage& message) {
    base::MutexLock lock(&mu_);
    if (finished_) return;
    queue_.push_back(message);
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void End(const grpc::Status& status) {
    {
      base::MutexLock lock(&mu_);
      if (std::exchange(finished_, true)) return;
    }
    Finish(status);
  }

 private:
  void OnReadDone(bool ok) override {
    Listener* listener = service_->listener_;
    if (!ok) {
      service_->loop_->Post([listener, link = link_] { listener->OnRankClosed(link); });
      End(grpc::Status::OK);
      return;
    }
    auto message = std::exchange(incoming_, std::make_shared<RankMessage>());
    service_->loop_->Post([listener, link = link_, message = std::move(message)] {
      listener->OnRankMessage(link, *message);
    });
    StartRead(incoming_.get());
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(&mu_);
    queue_.pop_front();
    if (ok && !finished_ && !queue_.empty()) StartWrite(&queue_.front());
  }

  void OnDone() override {
    {
      base::MutexLock lock(&service_->mu_);
      service_->calls_.erase(link_);
    }
    delete this;
  }

  Service* service_;
  const LinkId link_;
  std::shared_ptr<RankMessage> incoming_;
  base::Mutex mu_;
  std::deque<AgentMessage> queue_ GUARDED_BY(mu_);
  bool finished_ GUARDED_BY(mu_) = false;
};

grpc::ServerBidiReactor<RankMessage, AgentMessage>* GrpcRankServer::Service::Attach(
    grpc::CallbackServerContext* /*context*/) {
  base::MutexLock lock(&mu_);
  const LinkId link = next_link_++;
  auto call = std::make_unique<Call>(this, link);
  calls_[link] = call.get();
  return call.release();  // owned by gRPC until OnDone
}

void GrpcRankServer::Service::Send(LinkId link, const AgentMessage& message) {
  base::MutexLock lock(&mu_);
  const auto call = calls_.find(link);
  if (call != calls_.end()) call->second->Write(message);
}

void GrpcRankServer::Service::Refuse(LinkId link, const std::string& reason) {
  base::MutexLock lock(&mu_);
  const auto call = calls_.find(link);
  if (call != calls_.end()) {
    call->second->End(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, reason));
  }
}

GrpcRankServer::GrpcRankServer(EventLoop* loop) : service_(std::make_unique<Service>(loop)) {}
GrpcRankServer::~GrpcRankServer() { service_->Shutdown(); }

Status GrpcRankServer::Listen(const std::string& socket_path) {
  return service_->Listen(socket_path);
}
void GrpcRankServer::SetListener(Listener* listener) { service_->SetListener(listener); }
void GrpcRankServer::Send(LinkId link, const AgentMessage& message) {
  service_->Send(link, message);
}
void GrpcRankServer::Refuse(LinkId link, const std::string& reason) {
  service_->Refuse(link, reason);
}

}  // namespace mt::node
