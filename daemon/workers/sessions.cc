// Registration, message dispatch, leases and heartbeats.
#include "daemon/workers/sessions.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/rpc/version.h"
#include "daemon/authority/authority.h"
#include "daemon/feeds/feeds.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "daemon/keeper/restore_gate.h"
#include "daemon/keeper/roll_call.h"
#include "daemon/membership/lease_table.h"
#include "daemon/workers/node_facts.h"
#include "daemon/workers/orphans.h"
#include "daemon/workers/report_numbers.h"
#include "daemon/workers/reports.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

// What is taken although no order is given: it changes nothing.
bool ChangesNothing(const v1::WorkerMessage& message) {
  return message.has_heartbeat() || message.has_log_reply() || message.has_rank_readings();
}

}  // namespace

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
  const Status store = parts_.authority->CheckStore();
  if (!store.ok() && !ChangesNothing(message)) {
    // A report that is not taken is not acknowledged, so it comes again with the next session.
    if (message.has_register_()) Drop(id, store);
    return;
  }
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
    Heartbeat(id, message.heartbeat());
    return;
  }
  if (!ChangesNothing(message) && !TakesReports(*session, message)) return;
  if (message.seq() == 0 || TakeNumber(id, message)) Dispatch(id, message);
}

bool Sessions::TakeNumber(SessionId id, const v1::WorkerMessage& message) {
  const std::string& node = parts_.hub->Find(id)->node;
  v1::StoredWorker* worker = parts_.ledger->FindWorker(node);
  const ReportOrder order = OrderOfReport(message, worker);
  if (order == ReportOrder::kRefused) {
    parts_.reports->CountMalformed(*parts_.hub->Find(id), "a report out of order");
    Drop(id, rpc::WithReason(
                 base::FailedPrecondition(
                     "report {} of node {} does not follow upon {}, the last one taken: register "
                     "again (an agent that is refused again and again is to be restarted)",
                     message.seq(), node, worker->acked_seq()),
                 rpc::reason::kReportOutOfOrder));
    return false;
  }
  // The worker is marked in any case, so that it is acknowledged (again) after the commit: the
  // acknowledgement before may have been lost.
  parts_.ledger->MarkWorker(*worker, /*urgent=*/false);
  if (order == ReportOrder::kNext) return true;
  // The report was taken before; where the history could not keep its steps, the acknowledgement
  // was held back.
  const v1::StoredJob* job = parts_.ledger->FindJob(message.steps().job_uid());
  if (job != nullptr) parts_.feeds->KeepSteps(job->job(), message.steps());
  return false;
}

bool Sessions::TakesReports(const WorkerSession& session, const v1::WorkerMessage& message) {
  if (message.rank_report().fence_epoch() > 0)
    guard_.NoteFence(message.rank_report(), session.node);
  return parts_.authority->GivesOrders();
}

void Sessions::Dispatch(SessionId id, const v1::WorkerMessage& message) {
  WorkerSession& session = *parts_.hub->Find(id);
  Reports& reports = *parts_.reports;
  session.orders.Answered(message);
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
    case v1::WorkerMessage::kSecretKept:
      return claims_.OnSecretKept(session, message.secret_kept().generation());
    case v1::WorkerMessage::kHeldReport:
      // What it held before it registered is not what it holds.
      if (message.seq() <= session.newest_before) return;
      return settlement_.SettleReport(session, message.held_report());
    case v1::WorkerMessage::kEpochQuery:
      return reports.OnEpochQuery(session, message.epoch_query());
    case v1::WorkerMessage::kRankReadings:
      return reports.OnReadings(session, message.rank_readings());
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

// What the worker was told to forget by a store that knew more than this one: its reports are lost
// to this store, and what runs is asked for.
void Sessions::RecordLost(const v1::Register& hello, int64_t lost) {
  if (lost == 0) return;
  parts_.ledger->AddEvent(
      {.type = "ReportsLost",
       .message =
           fmt::format("{} reports before number {}, which its worker does not keep any more", lost,
                       hello.lowest_seq()),
       .node = hello.node()});
  log::Warn("reports of a worker are lost to this store",
            {{"node", hello.node()}, {"reports", lost}});
  v1::CoordinatorMessage message;
  message.mutable_held_request();
  parts_.hub->Send(hello.node(), std::move(message));
}

Status Sessions::CheckMayRegister(SessionId id, const v1::Register& hello) {
  RETURN_IF_ERROR(CheckRegister(hello));
  RETURN_IF_ERROR(guard_.CheckRegister(hello));
  if (!parts_.hub->Find(id)->node.empty()) return base::InvalidArgument("Register came twice");
  return claims_.Check(id, hello);
}

void Sessions::Register(SessionId id, const v1::Register& hello) {
  const Status status = CheckMayRegister(id, hello);
  if (!status.ok()) {
    log::Warn("registration refused", {{"node", hello.node()}, {"error", base::Message(status)}});
    Drop(id, status);
    return;
  }
  const HeldSettlement::Former former = claims_.FormerOf(hello);
  auto worker = std::make_unique<v1::StoredWorker>();
  if (former.same_worker)
    worker->set_acked_seq(parts_.ledger->FindWorker(hello.node())->acked_seq());
  const int64_t lost = BeginReports(hello, worker.get());
  claims_.Take(hello, worker.get());
  FillNode(hello, parts_.ledger->NowMicros(), worker->mutable_node());
  parts_.ledger->PutWorker(std::move(worker));
  parts_.rendezvous->DropWaiter(hello.node());
  parts_.feeds->OnNodeGone(hello.node());
  parts_.hub->Bind(id, hello.node());
  parts_.hub->Find(id)->newest_before = hello.newest_seq();
  parts_.leases->Start(hello.node(), parts_.clock->Now());
  parts_.ledger->AddEvent(
      {.type = "NodeRegistered", .message = hello.version(), .node = hello.node()});
  log::Info("worker registered", {{"node", hello.node()}, {"slots", hello.slots_size()}});
  if (hello.version() != rpc::Version()) {
    log::Warn("worker of another version",
              {{"node", hello.node()}, {"worker", hello.version()}, {"own", rpc::Version()}});
  }
  Welcome(id, hello);
  RecordLost(hello, lost);
  for (const v1::HeldAllocation& held : hello.allocations())
    settlement_.SettleHeld(*parts_.hub->Find(id), held);
  settlement_.SettleMissing(hello, former);
  parts_.keeper->nodes().Silent(hello.node(), false);
  parts_.restore_gate->Answered(hello.node());
  parts_.roll_call->Answered(hello.node());
}

void Sessions::Welcome(SessionId id, const v1::Register& hello) {
  v1::CoordinatorMessage message;
  v1::Registered* registered = message.mutable_registered();
  registered->set_coordinator_uid(parts_.coordinator_uid);
  registered->set_version(std::string(rpc::Version()));
  registered->set_heartbeat_interval_ms(control::kHeartbeatInterval.count());
  registered->set_lease_ms(parts_.leases->limits().lost_after.count());
  registered->set_cluster_id(parts_.ledger->Cluster().cluster_id());
  registered->set_term(parts_.ledger->Cluster().term());
  registered->set_takes_readings(true);
  claims_.GiveSecret(hello, parts_.hub->Find(id), registered);
  parts_.hub->Send(hello.node(), std::move(message));
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
  if (changed.has_checkpoint_root_id()) {
    node->set_checkpoint_root_id(changed.checkpoint_root_id());
  }
  parts_.ledger->MarkWorker(worker, /*urgent=*/true);
  parts_.placer->Run();
}

void Sessions::Heartbeat(SessionId id, const v1::Heartbeat& beat) {
  const std::string node = parts_.hub->Find(id)->node;
  if (!parts_.leases->Renew(node, parts_.clock->Now())) {
    Drop(id, rpc::WithReason(
                 base::FailedPrecondition("the lease of node {} is over; register again", node),
                 rpc::reason::kNotRegistered));
    return;
  }
  parts_.ledger->FindWorker(node)->mutable_node()->set_last_heartbeat_us(
      parts_.ledger->NowMicros());
  v1::CoordinatorMessage message;
  message.mutable_heartbeat_ack()->set_beat(beat.beat());
  parts_.hub->SendAtOnce(node, message);
  if (!parts_.authority->GivesOrders()) return;
  TellThinned(node);
  // A worker beats after it has sent again what it keeps.
  for (const JobEpoch& key : std::exchange(parts_.hub->Find(id)->unanswered, {})) {
    const v1::StoredJob* job = parts_.ledger->FindJob(key.job_uid);
    const v1::StoredAllocation* allocation =
        parts_.ledger->FindAllocation({key.job_uid, key.epoch, node});
    if (job != nullptr && allocation != nullptr && allocation->state() == v1::RESERVED)
      parts_.placer->SendAssign(*job, *allocation);
  }
  held_check_.OnBeat(*parts_.hub->Find(id), beat);
}

// One event for all markers that came since the last beat.
void Sessions::TellThinned(const std::string& node) {
  v1::StoredWorker* worker = parts_.ledger->FindWorker(node);
  if (worker->dropped_steps() == 0) return;
  parts_.ledger->AddEvent(
      {.type = "StepsThinned",
       .message = fmt::format("{} step records, given up while the coordinator was away",
                              worker->dropped_steps()),
       .node = node});
  worker->set_dropped_steps(0);
  parts_.ledger->MarkWorker(*worker, /*urgent=*/false);
}

void Sessions::Acknowledge(const v1::StoredWorker& worker) {
  const WorkerSession* session = parts_.hub->FindByNode(worker.node().name());
  if (session == nullptr || worker.acked_seq() == 0 || !parts_.feeds->StepsAreSafe()) return;
  // What is acknowledged here, the coordinator that is obeyed instead would never hear of.
  if (!parts_.authority->GivesOrders()) return;
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

void Sessions::RegisterAgain(const Status& why) {
  CloseAll(why);
  Recover();
}

Status Sessions::DeclareDead(const std::string& node, const Order& order) {
  v1::StoredWorker* worker = parts_.ledger->FindWorker(node);
  if (worker == nullptr) {
    return rpc::WithReason(base::NotFound("no node '{}' (mtctl get nodes lists them)", node),
                           rpc::reason::kUnknownNode);
  }
  const v1::NodeState state = parts_.leases->StateOf(node);
  if (state == v1::NODE_DEAD) return OkStatus();
  if (state != v1::NODE_LOST && parts_.keeper->nodes().HasLeftBehind(node)) {
    parts_.keeper->nodes().Dead(node, order, JobNodes::Which::kLeftBehind);
    return OkStatus();
  }
  if (state != v1::NODE_LOST) {
    return rpc::WithReason(
        base::FailedPrecondition(
            "node {} is {}: it was heard less than {} s ago, so what runs there can be stopped "
            "(mtctl kill)",
            node, v1::NodeState_Name(state),
            std::chrono::duration_cast<control::seconds>(parts_.leases->limits().lost_after)
                .count()),
        rpc::reason::kNodeAlive);
  }
  parts_.leases->DeclareDead(node);
  worker->mutable_node()->set_state(v1::NODE_DEAD);
  parts_.ledger->MarkWorker(*worker, /*urgent=*/true);
  parts_.keeper->nodes().Dead(node, order, JobNodes::Which::kAll);
  return OkStatus();
}

void Sessions::CloseNode(const std::string& node, const Status& status) {
  if (!parts_.hub->IsConnected(node)) return;
  parts_.hub->CloseNode(node, status);
  parts_.rendezvous->DropWaiter(node);
  parts_.feeds->OnNodeGone(node);
}

void Sessions::CloseAll(const Status& status) {
  for (const v1::StoredWorker* worker : parts_.ledger->Workers())
    CloseNode(worker->node().name(), status);
}

void Sessions::Tick() {
  parts_.orphans->Tick();
  for (const LeaseChange& change : parts_.leases->Tick(parts_.clock->Now())) {
    log::Warn("lease changed", {{"node", change.node},
                                {"from", v1::NodeState_Name(change.from)},
                                {"to", v1::NodeState_Name(change.to)}});
    if (change.to == v1::NODE_LOST) {
      parts_.keeper->nodes().Lost(change.node, parts_.restore_gate->IsOpen());
      CloseNode(change.node, base::Unavailable("no heartbeat from node {}", change.node));
    } else {
      parts_.keeper->nodes().Silent(change.node, change.to != v1::NODE_READY);
    }
  }
}

}  // namespace mt::daemon
