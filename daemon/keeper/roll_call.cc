// A set of names that only shrinks.
#include "daemon/keeper/roll_call.h"

#include "daemon/ledger/ledger.h"
#include "daemon/membership/lease_table.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

void RollCall::Begin() {
  for (const v1::StoredWorker* worker : ledger_->Workers()) {
    if (worker->node().state() != v1::NODE_DEAD) awaited_.insert(worker->node().name());
  }
}

void RollCall::Tick() {
  std::erase_if(awaited_, [this](const std::string& node) {
    const v1::NodeState state = leases_->StateOf(node);
    return state == v1::NODE_LOST || state == v1::NODE_DEAD || ledger_->FindWorker(node) == nullptr;
  });
}

}  // namespace mt::daemon
