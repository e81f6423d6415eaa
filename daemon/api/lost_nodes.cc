// From the allocations of the job's epoch and the leases of their nodes.
#include "daemon/api/lost_nodes.h"

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

// What the verb wants of the node's ranks.
std::string_view Wanted(const v1::Operation& operation) {
  if (operation.verb() == "kill") return "be killed";
  if (operation.verb() == "cancel") return "be stopped";
  if (operation.verb() == "pause") return operation.mode() == "hold" ? "be held" : "be released";
  if (operation.verb() == "checkpoint") return "save";
  return "be reached";
}

std::string TextOf(const v1::StoredWorker& worker, bool lost, const v1::Operation& operation) {
  const std::string& name = worker.node().name();
  const std::string since = base::FormatUtc(worker.node().last_heartbeat_us());
  if (!lost) return fmt::format("{} is silent since {}", name, since);
  return fmt::format(
      "{} is lost since {}: its ranks cannot {} until it is back; mtctl node declare-dead {} if it "
      "is off",
      name, since, Wanted(operation), name);
}

}  // namespace

void NameLostNodes(Ledger* ledger, const LeaseTable& leases, v1::Operation* operation) {
  const v1::StoredJob* job = operation->done() ? nullptr : ledger->FindJob(operation->target());
  if (job == nullptr) return;
  std::string progress = operation->progress();
  for (const v1::StoredAllocation* allocation : ledger->AllocationsOfJob(operation->target())) {
    const v1::NodeState state = leases.StateOf(allocation->node());
    const v1::StoredWorker* worker = ledger->FindWorker(allocation->node());
    const bool silent = state == v1::NODE_SUSPECT || state == v1::NODE_LOST;
    if (allocation->epoch() != job->job().epoch() || !silent || worker == nullptr) continue;
    operation->add_lost_nodes(allocation->node());
    progress +=
        (progress.empty() ? "" : "; ") + TextOf(*worker, state == v1::NODE_LOST, *operation);
  }
  operation->set_progress(progress);
}

}  // namespace mt::daemon
