// The workers' sessions: registration, heartbeats, acknowledgements, and the dispatch of every
// message to whoever handles it. A worker's reports carry a rising seq; what was seen before is
// dropped, and after each commit the worker hears what is on disk. Not thread-safe (the core's
// thread).
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"
#include "daemon/workers/held_check.h"
#include "daemon/workers/held_settlement.h"

namespace megatrain::v1 {
class Heartbeat;
class Register;
class SlotsChanged;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::daemon {

class Feeds;
class JobKeeper;
class LeaseTable;
class Orphans;
class Placer;
class Reports;

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
                     .orphans = parts_.orphans}),
        held_check_(parts_.ledger, parts_.hub) {}

  SessionId Open(std::shared_ptr<WorkerLink> link) { return parts_.hub->Open(std::move(link)); }
  void OnMessage(SessionId id, const v1::WorkerMessage& message);
  void OnClosed(SessionId id);
  // An operator says that nothing runs on a node that is lost. NotFound (UNKNOWN_NODE);
  // FailedPrecondition (NODE_ALIVE) while it is heard.
  Status DeclareDead(const std::string& node, const Order& order);
  // Moves leases on: nodes become suspect, then lost (L1).
  void Tick();
  // After a restart every lease starts anew.
  void Recover();
  // Tells the worker which of its reports are on disk.
  void Acknowledge(const v1::StoredWorker& worker);
  // How often a node held other ranks than the ledger said.
  int64_t num_held_mismatches() const { return held_check_.num_mismatches(); }

 private:
  void Register(SessionId id, const v1::Register& hello);
  // OK where the node's name is free, or its former holder is certainly gone.
  Status CheckName(SessionId id, const v1::Register& hello);
  void OnSlotsChanged(const WorkerSession& session, const v1::SlotsChanged& changed);
  void Heartbeat(SessionId id, const v1::Heartbeat& beat);
  void Dispatch(SessionId id, const v1::WorkerMessage& message);
  void Drop(SessionId id, const Status& status);

  Parts parts_;
  HeldSettlement settlement_;
  HeldCheck held_check_;
};

}  // namespace mt::daemon
