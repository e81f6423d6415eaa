// Sessions by id and by node; at most one session per node is bound.
#include "daemon/hub/worker_hub.h"

#include <utility>

#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "daemon/authority/authority.h"
#include "daemon/ledger/ledger.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

SessionId WorkerHub::Open(std::shared_ptr<WorkerLink> link) {
  const SessionId id = next_id_++;
  sessions_[id].link = std::move(link);
  return id;
}

WorkerSession* WorkerHub::Find(SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

WorkerSession* WorkerHub::FindByNode(std::string_view node) {
  const auto it = by_node_.find(node);
  return it == by_node_.end() ? nullptr : Find(it->second);
}

void WorkerHub::Bind(SessionId id, const std::string& node) {
  const auto old = by_node_.find(node);
  if (old != by_node_.end() && old->second != id) {
    Close(old->second, rpc::WithReason(base::Error(absl::StatusCode::kAborted,
                                                   "node {} opened a newer session", node),
                                       rpc::reason::kSessionReplaced));
  }
  Find(id)->node = node;
  by_node_[node] = id;
}

std::string WorkerHub::Close(SessionId id, const Status& status) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return "";
  const WorkerSession session = std::move(it->second);
  sessions_.erase(it);
  session.link->Close(status);
  const auto bound = by_node_.find(session.node);
  if (bound == by_node_.end() || bound->second != id) return "";
  by_node_.erase(bound);
  return session.node;
}

void WorkerHub::CloseNode(const std::string& node, const Status& status) {
  const auto it = by_node_.find(node);
  if (it != by_node_.end()) Close(it->second, status);
}

void WorkerHub::CloseAll(const Status& status) {
  for (const auto& [id, session] : sessions_) session.link->Close(status);
  sessions_.clear();
  by_node_.clear();
}

bool WorkerHub::SendAtOnce(std::string_view node, const v1::CoordinatorMessage& message) {
  const WorkerSession* session = FindByNode(node);
  if (session == nullptr) return false;
  session->link->Send(message);
  return true;
}

bool WorkerHub::Send(std::string_view node, v1::CoordinatorMessage message) {
  WorkerSession* session = FindByNode(node);
  if (session == nullptr) return false;
  session->orders.Sent(message);
  ledger_->AfterCommit([authority = authority_, node = session->node, link = session->link,
                        message = std::move(message)](const Status& commit) {
    if (!commit.ok()) return;
    if ((message.has_assign() || message.has_command()) && !authority->GivesOrders()) {
      log::Warn("an order is not given", {{"node", node}, {"why", authority->Why()}});
      return;
    }
    link->Send(message);
  });
  return true;
}

}  // namespace mt::daemon
