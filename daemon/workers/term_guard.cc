// The comparison, and its trace in store and events.
#include "daemon/workers/term_guard.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "common/rpc/reason.h"
#include "daemon/authority/authority.h"
#include "daemon/keeper/closed.h"
#include "daemon/ledger/ledger.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

constexpr size_t kMaxTold = 1'000;

}  // namespace

Status TermGuard::CheckRegister(const v1::Register& hello) {
  const v1::StoredCluster& own = ledger_->Cluster();
  if (!hello.cluster_id().empty() && hello.cluster_id() != own.cluster_id()) {
    return Refused(hello,
                   rpc::WithReason(
                       base::FailedPrecondition(
                           "node {} belongs to cluster {}, this coordinator's store to {}: look at "
                           "--state of the coordinator and --coordinator of the worker; "
                           "`mt-worker join {}` on the node, with its agent stopped, moves it over",
                           hello.node(), hello.cluster_id(), own.cluster_id(), own.cluster_id()),
                       rpc::reason::kWrongCluster));
  }
  const bool other_start = hello.term() == own.term() && !hello.coordinator_uid().empty() &&
                           hello.coordinator_uid() != coordinator_uid_;
  if (hello.term() > own.term() || other_start) {
    Supersede(
        hello.term(),
        fmt::format("superseded: node {} obeys term {} of another coordinator of this cluster, "
                    "this one has term {}. If that one still runs, stop this one; if this "
                    "store is the one to go on with, declare so: mtctl admin restore",
                    hello.node(), hello.term(), own.term()));
    return Refused(hello, rpc::WithReason(
                              base::FailedPrecondition("this coordinator is {}", authority_->Why()),
                              rpc::reason::kTermSuperseded));
  }
  if (const std::string what = Forgotten(hello); !what.empty()) {
    Supersede(own.term(),
              fmt::format("superseded: this store is an older copy: node {} {}. If another "
                          "coordinator of this cluster runs, stop this one; if this store is the "
                          "one to go on with, declare so: mtctl admin restore",
                          hello.node(), what));
  }
  const Status orders = authority_->CheckOrders();
  return orders.ok() ? orders : Refused(hello, orders);
}

std::string TermGuard::Forgotten(const v1::Register& hello) {
  const int64_t restored = ledger_->Cluster().restored_term();
  // What it did before it obeyed this cluster, or before the restore, this store need not know.
  if (hello.term() == 0 || hello.term() < restored) return "";
  const v1::StoredWorker* worker = ledger_->FindWorker(hello.node());
  const bool same = worker != nullptr && worker->node().uid() == hello.worker_uid();
  if (same && hello.lowest_seq() > worker->acked_seq() + 1) {
    return fmt::format("had its reports acknowledged up to number {}, and the store has {}",
                       hello.lowest_seq() - 1, worker->acked_seq());
  }
  for (const v1::HeldAllocation& held : hello.allocations()) {
    const AllocationKey key{held.job_uid(), held.epoch(), hello.node()};
    const int64_t term = control::TermOfEpoch(held.epoch());
    if (term == 0 || term < restored || term > hello.term()) continue;
    const v1::StoredJob* job = ledger_->FindJob(key.job_uid);
    const bool given = job != nullptr && job->job().epoch() >= key.epoch;
    if (given || ledger_->FindAllocation(key) != nullptr || IsClosed(ledger_, key)) continue;
    return fmt::format("holds ranks of job {}, epoch {}, which the store does not know",
                       key.job_uid, control::EpochText(key.epoch));
  }
  return "";
}

Status TermGuard::Refused(const v1::Register& hello, Status why) {
  const std::string reason = rpc::ReasonOf(why);
  if (told_.size() >= kMaxTold) told_.clear();
  if (!told_.insert(fmt::format("{}/{}/{}", hello.node(), hello.worker_uid(), reason)).second)
    return why;
  ledger_->AddEvent({.type = "WorkerRefused",
                     .message = fmt::format("{}: {}", reason, base::Message(why)),
                     .node = hello.node()});
  return why;
}

void TermGuard::NoteFence(const v1::RankReport& report, const std::string& node) {
  const int64_t own = ledger_->Cluster().term();
  const int64_t term = control::TermOfEpoch(report.fence_epoch());
  // Of its own term this coordinator knows every epoch that it gave.
  const v1::StoredJob* job = ledger_->FindJob(report.job_uid());
  const bool not_its_own =
      term == own && job != nullptr && report.fence_epoch() > job->job().epoch();
  if (term <= own && !not_its_own) return;
  Supersede(term, fmt::format(
                      "superseded: rank {} on node {} found epoch {} of its job in the "
                      "checkpoint directory, which this coordinator (term {}) did not give. If the "
                      "coordinator that gave it still runs, stop this one; if this store is the "
                      "one to go on with, declare so: mtctl admin restore",
                      report.status().rank(), node, control::EpochText(report.fence_epoch()), own));
}

void TermGuard::Supersede(int64_t term, const std::string& why) {
  v1::StoredCluster& own = ledger_->Cluster();
  const bool first = !authority_->IsSuperseded();
  if (!first && term <= own.superseded_by()) return;
  own.set_superseded_by(std::max(term, own.superseded_by()));
  if (first) own.set_superseded(why);
  ledger_->MarkCluster();
  if (!first) return;
  authority_->Supersede(why);
  ledger_->AddEvent({.type = "CoordinatorSuperseded", .message = why});
  log::Error("this coordinator gives no orders any more", {{"why", why}});
}

}  // namespace mt::daemon
