// Compares, with every heartbeat, what a node says that it holds with what the ledger says
// (docs/design/control-plane.md#reconciliation): one number each. Where they differ although
// everything that was said is taken and every order is answered, the full set is asked for. Not
// thread-safe (the core's thread).
#pragma once

#include <cstdint>

#include "daemon/hub/worker_hub.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class Heartbeat;
}

namespace mt::daemon {

class HeldCheck {
 public:
  // Both outlive it.
  HeldCheck(Ledger* ledger, WorkerHub* hub) : ledger_(ledger), hub_(hub) {}

  void OnBeat(WorkerSession& from, const v1::Heartbeat& beat);
  // How often a node and the ledger meant different things.
  int64_t num_mismatches() const { return num_mismatches_; }

 private:
  Ledger* ledger_;
  WorkerHub* hub_;
  int64_t num_mismatches_ = 0;
};

// Asks the node for everything that it holds; its HeldReport is settled by HeldSettlement.
void AskForHeld(WorkerHub* hub, const std::string& node, bool with_assign);

}  // namespace mt::daemon
