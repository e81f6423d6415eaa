// Which nodes are awaited is memory of this start; whether the restore is settled is in the store.
#include "daemon/keeper/restore_gate.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/control/numbers.h"
#include "daemon/ledger/ledger.h"
#include "daemon/membership/lease_table.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

constexpr size_t kMostNodesNamed = 5;

}  // namespace

bool RestoreGate::IsOpen() const {
  const v1::StoredCluster& cluster = parts_.ledger->Cluster();
  return cluster.restored_term() == 0 || cluster.restore_settled();
}

void RestoreGate::Close() {
  awaited_.clear();
  if (IsOpen()) return;
  for (const v1::StoredWorker* worker : parts_.ledger->Workers()) {
    if (worker->node().state() != v1::NODE_DEAD) awaited_.insert(worker->node().name());
  }
  until_ = parts_.clock->Now() + control::kOrphanGrace + control::kRestoreMargin;
}

void RestoreGate::Tick() {
  if (IsOpen()) return;
  std::erase_if(awaited_, [this](const std::string& node) {
    return parts_.leases->StateOf(node) == v1::NODE_DEAD ||
           parts_.ledger->FindWorker(node) == nullptr;
  });
  if (awaited_.empty()) return Settle("every node has answered, or was given up");
  if (parts_.clock->Now() < until_) return;
  Settle(fmt::format("the time is over; not heard: {}", fmt::join(awaited_, ", ")));
}

void RestoreGate::Settle(const std::string& why) {
  awaited_.clear();
  parts_.ledger->Cluster().set_restore_settled(true);
  parts_.ledger->MarkCluster();
  parts_.ledger->AddEvent({.type = "RestoreSettled", .message = why});
  log::Info("jobs are placed again after the restore", {{"why", why}});
}

std::string RestoreGate::Why() const {
  std::vector<std::string> named(awaited_.begin(), awaited_.end());
  const size_t more = named.size() - std::min(named.size(), kMostNodesNamed);
  named.resize(named.size() - more);
  return fmt::format(
      "the store was restored: nothing is placed before node {}{} has said what runs there (mtctl "
      "node declare-dead NODE gives one up)",
      fmt::join(named, ", node "), more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace mt::daemon
