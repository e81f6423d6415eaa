// Registration, message dispatch, leases and heartbeats.
#include "daemon/workers/sessions.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/rpc/version.h"
#include "daemon/feeds/feeds.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "daemon/membership/lease_table.h"
#include "daemon/workers/node_facts.h"
#include "daemon/workers/reports.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

void Sessions::Drop(SessionId id, const Status& status) {
  const std::string node = parts_.hub->Close(id, status);
  if (node.empty()) return;
  parts_.rendezvous->DropWaiter(node);
  parts_.feeds->OnNodeGone(node);
}

void Sessions::OnClosed(SessionId id) { Drop(id, OkStatus()); }

void Sessions::OnMessage(SessionId id, const v1::WorkerMessage& message) {
  const WorkerSession* session = parts_.hub->Find(id);
  if (session == nullptr) return;
  if (message.has_register_()) {
    Register(id, message.register_());
    return;
  }
  if (session->node.empty()) {
    Drop(id, rpc::WithReason(
                 base::FailedPrecondition("the first message of a session must be Register"),
                 rpc::reason::kNotRegistered));
    return;
  }
  if (message.has_heartbeat()) {
    Heartbeat(id, message.heartbeat().beat());
    return;
  }
  if (message.seq() > 0) {
    v1::StoredWorker* worker = parts_.ledger->FindWorker(session->node);
    // The worker is marked in any case, so that it is acknowledged (again) after the commit: the
    // acknowledgement before may have been lost.
    parts_.ledger->MarkWorker(*worker, /*urgent=*/false);
    if (message.seq() <= worker->acked_seq()) {
      // The report was taken before; where the history could not keep its steps, the
      // acknowledgement was held back.
      const v1::StoredJob* job = parts_.ledger->FindJob(message.steps().job_uid());
      if (job != nullptr) parts_.feeds->KeepSteps(job->job(), message.steps());
      return;
    }
    worker->set_acked_seq(message.seq());
  }
  Dispatch(id, message);
}

void Sessions::Dispatch(SessionId id, const v1::WorkerMessage& message) {
  WorkerSession& session = *parts_.hub->Find(id);
  Reports& reports = *parts_.reports;
  switch (message.body_case()) {
    case v1::WorkerMessage::kAssignmentReply:
      return reports.OnAssignmentReply(session, message.assignment_reply());
    case v1::WorkerMessage::kRankReport:
      return reports.OnRank(session, message.rank_report());
    case v1::WorkerMessage::kSteps:
      return reports.OnSteps(session, message.steps());
    case v1::WorkerMessage::kJobReport:
      return reports.OnJob(session, message.job_report());
    case v1::WorkerMessage::kRendezvousSet:
      return reports.OnRendezvousSet(session, message.rendezvous_set());
    case v1::WorkerMessage::kRendezvousGet:
      return reports.OnRendezvousGet(session, message.rendezvous_get());
    case v1::WorkerMessage::kLogReply:
      return parts_.feeds->OnLogReply(session.node, message.log_reply());
    case v1::WorkerMessage::kCommandAck:
      return reports.OnCommandAck(session, message.command_ack());
    case v1::WorkerMessage::kAllocationGone:
      return reports.OnAllocationGone(session, message.allocation_gone());
    case v1::WorkerMessage::kSlotsChanged:
      return OnSlotsChanged(session, message.slots_changed());
    case v1::WorkerMessage::kEpochQuery:
      return reports.OnEpochQuery(session, message.epoch_query());
    case v1::WorkerMessage::kHeldReport:
    case v1::WorkerMessage::kRegister:
    case v1::WorkerMessage::kHeartbeat:
      return;
    case v1::WorkerMessage::BODY_NOT_SET:
      // A newer agent's message that is unknown here is acknowledged, so that it does not block the
      // others.
      log::Warn("message of unknown content", {{"node", session.node}});
      return;
  }
}

Status Sessions::CheckName(SessionId id, const v1::Register& hello) {
  const v1::StoredWorker* known = parts_.ledger->FindWorker(hello.node());
  const WorkerSession* holder = parts_.hub->FindByNode(hello.node());
  if (known == nullptr || holder == nullptr || holder == parts_.hub->Find(id)) return OkStatus();
  const bool same = known->node().uid() == hello.worker_uid();
  const bool rebooted = known->node().boot_id() != hello.boot_id();
  if (same || rebooted || parts_.leases->StateOf(hello.node()) != v1::NODE_READY) return OkStatus();
  return rpc::WithReason(base::Error(absl::StatusCode::kAlreadyExists,
                                     "node name '{}' belongs to a worker that is connected (from "
                                     "{}); give this one another --node",
                                     hello.node(), known->node().address()),
                         rpc::reason::kNodeNameInUse);
}

void Sessions::Register(SessionId id, const v1::Register& hello) {
  Status status = CheckRegister(hello);
  if (status.ok()) status = CheckName(id, hello);
  if (status.ok() && !parts_.hub->Find(id)->node.empty())
    status = base::InvalidArgument("Register came twice");
  if (!status.ok()) {
    log::Warn("registration refused", {{"node", hello.node()}, {"error", base::Message(status)}});
    Drop(id, status);
    return;
  }
  const v1::StoredWorker* known = parts_.ledger->FindWorker(hello.node());
  const HeldSettlement::Former former{
      .same_worker = known != nullptr && known->node().uid() == hello.worker_uid(),
      .same_boot = known != nullptr && known->node().boot_id() == hello.boot_id()};
  auto worker = std::make_unique<v1::StoredWorker>();
  worker->set_acked_seq(former.same_worker ? known->acked_seq() : 0);
  FillNode(hello, parts_.ledger->NowMicros(), worker->mutable_node());
  parts_.ledger->PutWorker(std::move(worker));
  parts_.rendezvous->DropWaiter(hello.node());
  parts_.feeds->OnNodeGone(hello.node());
  parts_.hub->Bind(id, hello.node());
  parts_.leases->Start(hello.node(), parts_.clock->Now());
  parts_.ledger->AddEvent(
      {.type = "NodeRegistered", .message = hello.version(), .node = hello.node()});
  log::Info("worker registered", {{"node", hello.node()}, {"slots", hello.slots_size()}});
  if (hello.version() != rpc::Version()) {
    log::Warn("worker of another version",
              {{"node", hello.node()}, {"worker", hello.version()}, {"own", rpc::Version()}});
  }
  v1::CoordinatorMessage message;
  v1::Registered* registered = message.mutable_registered();
  registered->set_coordinator_uid(parts_.coordinator_uid);
  registered->set_version(std::string(rpc::Version()));
  registered->set_heartbeat_interval_ms(control::kHeartbeatInterval.count());
  registered->set_lease_ms(control::kWorkerLostAfter.count());
  parts_.hub->Send(hello.node(), std::move(message));
  for (const v1::HeldAllocation& held : hello.allocations())
    settlement_.SettleHeld(*parts_.hub->Find(id), held);
  settlement_.SettleMissing(hello, former);
  parts_.keeper->nodes().Silent(hello.node(), false);
}

void Sessions::OnSlotsChanged(const WorkerSession& session, const v1::SlotsChanged& changed) {
  v1::StoredWorker& worker = *parts_.ledger->FindWorker(session.node);
  v1::Node* node = worker.mutable_node();
  const auto same = [](const v1::Slot& a, const v1::Slot& b) {
    return a.index() == b.index() && a.device() == b.device() && a.gpu().uuid() == b.gpu().uuid();
  };
  if (!std::ranges::equal(node->slots(), changed.slots(), same)) {
    log::Warn("a worker speaks of slots that it has not registered", {{"node", session.node}});
    return;
  }
  for (int i = 0; i < changed.slots_size(); ++i) {
    const std::string& why = changed.slots(i).out_of_order();
    v1::Slot* slot = node->mutable_slots(i);
    if (slot->out_of_order() == why) continue;
    if (slot->out_of_order().empty() || why.empty()) {
      parts_.ledger->AddEvent(
          {.type = why.empty() ? "SlotInOrder" : "SlotOutOfOrder",
           .message = fmt::format("slot {}, {}{}{}", slot->index(), slot->gpu().uuid(),
                                  why.empty() ? "" : ": ", why),
           .node = session.node});
    }
    slot->set_out_of_order(why);
  }
  if (changed.has_gpu_problem()) node->set_gpu_problem(changed.gpu_problem());
  parts_.ledger->MarkWorker(worker, /*urgent=*/true);
  parts_.placer->Run();
}

void Sessions::Heartbeat(SessionId id, int64_t beat) {
  const std::string node = parts_.hub->Find(id)->node;
  if (!parts_.leases->Renew(node, parts_.clock->Now())) {
    Drop(id, rpc::WithReason(
                 base::FailedPrecondition("the lease of node {} is over; register again", node),
                 rpc::reason::kNotRegistered));
    return;
  }
  parts_.ledger->FindWorker(node)->mutable_node()->set_last_heartbeat_us(
      parts_.ledger->NowMicros());
  // A worker beats after it has sent again what it keeps.
  for (const JobEpoch& key : std::exchange(parts_.hub->Find(id)->unanswered, {})) {
    const v1::StoredJob* job = parts_.ledger->FindJob(key.job_uid);
    const v1::StoredAllocation* allocation =
        parts_.ledger->FindAllocation({key.job_uid, key.epoch, node});
    if (job != nullptr && allocation != nullptr && allocation->state() == v1::RESERVED)
      parts_.placer->SendAssign(*job, *allocation);
  }
  v1::CoordinatorMessage message;
  message.mutable_heartbeat_ack()->set_beat(beat);
  parts_.hub->Send(node, std::move(message));
}

void Sessions::Acknowledge(const v1::StoredWorker& worker) {
  const WorkerSession* session = parts_.hub->FindByNode(worker.node().name());
  if (session == nullptr || worker.acked_seq() == 0 || !parts_.feeds->StepsAreSafe()) return;
  v1::CoordinatorMessage message;
  message.mutable_report_ack()->set_seq(worker.acked_seq());
  session->link->Send(message);
}

void Sessions::Recover() {
  for (const v1::StoredWorker* worker : parts_.ledger->Workers()) {
    if (worker->node().state() == v1::NODE_DEAD) {
      parts_.leases->DeclareDead(worker->node().name());
    } else {
      parts_.leases->Start(worker->node().name(), parts_.clock->Now());
    }
  }
}

Status Sessions::DeclareDead(const std::string& node, const Order& order) {
  v1::StoredWorker* worker = parts_.ledger->FindWorker(node);
  if (worker == nullptr) {
    return rpc::WithReason(base::NotFound("no node '{}' (mtctl get nodes lists them)", node),
                           rpc::reason::kUnknownNode);
  }
  const v1::NodeState state = parts_.leases->StateOf(node);
  if (state == v1::NODE_DEAD) return OkStatus();
  if (state != v1::NODE_LOST) {
    return rpc::WithReason(
        base::FailedPrecondition(
            "node {} is {}: it was heard less than {} s ago, so what runs there can be stopped "
            "(mtctl kill)",
            node, v1::NodeState_Name(state),
            std::chrono::duration_cast<control::seconds>(control::kWorkerLostAfter).count()),
        rpc::reason::kNodeAlive);
  }
  parts_.leases->DeclareDead(node);
  worker->mutable_node()->set_state(v1::NODE_DEAD);
  parts_.ledger->MarkWorker(*worker, /*urgent=*/true);
  parts_.keeper->nodes().Dead(node, order);
  return OkStatus();
}

void Sessions::Tick() {
  for (const LeaseChange& change : parts_.leases->Tick(parts_.clock->Now())) {
    log::Warn("lease changed", {{"node", change.node},
                                {"from", v1::NodeState_Name(change.from)},
                                {"to", v1::NodeState_Name(change.to)}});
    if (change.to == v1::NODE_LOST) {
      const WorkerSession* session = parts_.hub->FindByNode(change.node);
      parts_.keeper->nodes().Lost(change.node);
      if (session == nullptr) continue;
      parts_.hub->CloseNode(change.node,
                            base::Unavailable("no heartbeat from node {}", change.node));
      parts_.rendezvous->DropWaiter(change.node);
      parts_.feeds->OnNodeGone(change.node);
    } else {
      parts_.keeper->nodes().Silent(change.node, change.to != v1::NODE_READY);
    }
  }
}

}  // namespace mt::daemon
