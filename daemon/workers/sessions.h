// The workers' sessions: registration, heartbeats, acknowledgements, and the dispatch of every
// message to whoever handles it. A worker's reports carry a rising seq; what was taken before is
// dropped, what does not follow upon it ends the session, and after each commit the worker hears
// what is on disk. Not thread-safe (the core's thread).
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"
#include "daemon/workers/held_check.h"
#include "daemon/workers/held_settlement.h"
#include "daemon/workers/node_claims.h"
#include "daemon/workers/term_guard.h"

namespace megatrain::v1 {
class Heartbeat;
class Register;
class SlotsChanged;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::daemon {

class Authority;
class Feeds;
class JobKeeper;
class LeaseTable;
class Orphans;
class Placer;
class Reports;
class RestoreGate;
class RollCall;

class Sessions {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    LeaseTable* leases;
    JobKeeper* keeper;
    Placer* placer;
    Reports* reports;
    Orphans* orphans;
    Feeds* feeds;
    KeyValues* rendezvous;
    Authority* authority;
    RestoreGate* restore_gate;
    RollCall* roll_call;
    const base::Clock* clock;
    std::string coordinator_uid;
  };
  // All parts outlive it.
  explicit Sessions(Parts parts)
      : parts_(std::move(parts)),
        settlement_({.ledger = parts_.ledger,
                     .hub = parts_.hub,
                     .keeper = parts_.keeper,
                     .reports = parts_.reports,
                     .restore_gate = parts_.restore_gate,
                     .orphans = parts_.orphans}),
        held_check_(parts_.ledger, parts_.hub),
        claims_({.ledger = parts_.ledger, .hub = parts_.hub, .leases = parts_.leases}),
        guard_(parts_.ledger, parts_.authority, parts_.coordinator_uid) {}

  SessionId Open(std::shared_ptr<WorkerLink> link) { return parts_.hub->Open(std::move(link)); }
  void OnMessage(SessionId id, const v1::WorkerMessage& message);
  void OnClosed(SessionId id);
  // An operator says that nothing runs on a node that is lost; where another machine has its name
  // by now, on the one before. NotFound (UNKNOWN_NODE); FailedPrecondition (NODE_ALIVE) while it is
  // heard.
  Status DeclareDead(const std::string& node, const Order& order);
  // Who may have which node's name.
  NodeClaims& claims() { return claims_; }
  // Moves leases on: nodes become suspect, then lost (L1).
  void Tick();
  // After a restart every lease starts anew.
  void Recover();
  // Ends the session of every node, so that each registers and sends again what was not taken.
  void CloseAll(const Status& status);
  // Closes every session, and gives the workers a lease of full length to register again.
  void RegisterAgain(const Status& why);
  // Tells the worker which of its reports are on disk.
  void Acknowledge(const v1::StoredWorker& worker);
  // How often a node held other ranks than the ledger said.
  int64_t num_held_mismatches() const { return held_check_.num_mismatches(); }

 private:
  void Register(SessionId id, const v1::Register& hello);
  void Welcome(SessionId id, const v1::Register& hello);
  // Whether the report is to be dispatched; ends the session of one that is out of order.
  bool TakeNumber(SessionId id, const v1::WorkerMessage& message);
  void RecordLost(const v1::Register& hello, int64_t lost);
  void TellThinned(const std::string& node);
  Status CheckMayRegister(SessionId id, const v1::Register& hello);
  // False where the reports of this worker are not taken, nor acknowledged: no orders are given.
  bool TakesReports(const WorkerSession& session, const v1::WorkerMessage& message);
  void OnSlotsChanged(const WorkerSession& session, const v1::SlotsChanged& changed);
  void Heartbeat(SessionId id, const v1::Heartbeat& beat);
  void Dispatch(SessionId id, const v1::WorkerMessage& message);
  void Drop(SessionId id, const Status& status);
  void CloseNode(const std::string& node, const Status& status);

  Parts parts_;
  HeldSettlement settlement_;
  HeldCheck held_check_;
  NodeClaims claims_;
  TermGuard guard_;
};

}  // namespace mt::daemon
