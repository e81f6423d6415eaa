// The open sessions of the workers: who is connected, and how the core speaks to it. Messages leave
// after the next commit, in order. Not thread-safe (the core's thread); links are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/hub/open_orders.h"
#include "daemon/rendezvous/key_values.h"

namespace megatrain::v1 {
class CoordinatorMessage;
}

namespace mt::daemon {

namespace v1 = megatrain::v1;
class Authority;
class Ledger;

// The stream towards one worker; implementations are thread-safe.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // Does not block; after Close it does nothing.
  virtual void Send(const v1::CoordinatorMessage& message) = 0;
  virtual void Close(const Status& status) = 0;
};

using SessionId = int64_t;

struct WorkerSession {
  std::shared_ptr<WorkerLink> link;
  std::string node;             // empty until registered
  std::set<JobEpoch> told_off;  // closed epochs that were answered with a kill already
  // Placements that the worker may have had, and ended, before this session: they are sent again
  // only once the reports that it keeps have come.
  std::set<JobEpoch> unanswered;
  int64_t given_generation = 0;  // of the node secret that was given in this session; 0: none was
  OpenOrders orders;
  // Register.newest_seq: a report up to that number was made before the worker registered.
  int64_t newest_before = 0;
  // The Assign of an orphan was asked for, in this session.
  bool asked_for_assign = false;
  // The worker's heartbeats carry a digest.
  bool says_what_it_holds = false;
};

class WorkerHub {
 public:
  // Both outlive the hub.
  WorkerHub(Ledger* ledger, const Authority* authority) : ledger_(ledger), authority_(authority) {}

  SessionId Open(std::shared_ptr<WorkerLink> link);
  // nullptr: the session is closed.
  WorkerSession* Find(SessionId id);
  WorkerSession* FindByNode(std::string_view node);
  bool IsConnected(std::string_view node) { return FindByNode(node) != nullptr; }
  // From now on the node is reached through this session; the node's former session, if any, is
  // closed.
  void Bind(SessionId id, const std::string& node);
  // Forgets the session; returns its node ("" if it had none, or another session took over).
  std::string Close(SessionId id, const Status& status);
  void CloseNode(const std::string& node, const Status& status);
  void CloseAll(const Status& status);

  // Sends after the next commit; an order (Assign, Command) goes nowhere where the coordinator then
  // gives none, which is the last line: whoever orders asks Authority before. False where the node
  // is not connected: whoever must be heard tries again when it registers.
  bool Send(std::string_view node, v1::CoordinatorMessage message);
  // Sends now: what neither tells nor orders anything that has to be on disk. False as above.
  bool SendAtOnce(std::string_view node, const v1::CoordinatorMessage& message);

 private:
  Ledger* ledger_;
  const Authority* authority_;
  SessionId next_id_ = 1;
  std::map<SessionId, WorkerSession> sessions_;
  std::map<std::string, SessionId, std::less<>> by_node_;
};

}  // namespace mt::daemon
