// The comparison, in the order in which it says most: cluster, term, start.
#include "worker/node/agent/obedience.h"

#include <algorithm>
#include <array>

#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

using megatrain::v1::Register;
using megatrain::v1::Registered;

namespace reason = rpc::reason;

void Obedience::FillRegister(Register* message) const {
  message->set_cluster_id(known_.cluster_id);
  message->set_term(known_.term);
  message->set_coordinator_uid(known_.coordinator_uid);
}

Status Obedience::Judge(const Registered& registered) const {
  if (known_.cluster_id.empty()) return OkStatus();
  if (registered.cluster_id() != known_.cluster_id) {
    return rpc::WithReason(
        base::FailedPrecondition(
            "this node belongs to cluster {}, the coordinator's store to {}: look at --coordinator "
            "and at the coordinator's --state; `mt-worker join` moves the node over",
            known_.cluster_id, registered.cluster_id().empty() ? "none" : registered.cluster_id()),
        reason::kWrongCluster);
  }
  if (registered.term() < known_.term) {
    return rpc::WithReason(
        base::FailedPrecondition("the coordinator has term {}, this node obeys term {}: it is "
                                 "superseded, or its store is an older one (mtctl admin restore)",
                                 registered.term(), known_.term),
        reason::kTermSuperseded);
  }
  if (registered.term() == known_.term && !known_.coordinator_uid.empty() &&
      registered.coordinator_uid() != known_.coordinator_uid) {
    return rpc::WithReason(
        base::FailedPrecondition("two coordinators have term {}: this node obeys {}, not {}, whose "
                                 "store is a copy (mtctl admin restore)",
                                 known_.term, known_.coordinator_uid, registered.coordinator_uid()),
        reason::kTermSuperseded);
  }
  return OkStatus();
}

Status Obedience::Check(const Registered& registered) {
  Status status = Judge(registered);
  ClusterState next{.cluster_id = registered.cluster_id(),
                    .term = registered.term(),
                    .coordinator_uid = registered.coordinator_uid()};
  // A coordinator that is older than terms says nothing of them.
  if (status.ok() && !next.cluster_id.empty() && next != known_) {
    if (store_ != nullptr) status = store_->Save(next);
    if (status.ok()) {
      log::Info("a new term is obeyed", {{"cluster", next.cluster_id}, {"term", next.term}});
      known_ = std::move(next);
    }
  }
  if (status.ok()) {
    refusal_.clear();
  } else {
    Refuse(status);
  }
  return status;
}

void Obedience::OnClosed(const Status& why) {
  constexpr std::array kRefusals = {reason::kWrongCluster, reason::kTermSuperseded,
                                    reason::kCoordinatorSuperseded};
  if (std::ranges::find(kRefusals, rpc::ReasonOf(why)) != kRefusals.end()) Refuse(why);
}

void Obedience::Refuse(const Status& why) {
  const std::string found = rpc::ReasonOf(why);
  std::string text = fmt::format("{}{}{}", found, found.empty() ? "" : ": ", base::Message(why));
  if (text == refusal_) return;
  refusal_ = std::move(text);
  log::Error("the coordinator is not obeyed; ranks go on", {{"why", refusal_}});
}

}  // namespace mt::node
