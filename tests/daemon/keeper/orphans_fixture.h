// Workers that hold ranks which the coordinator has not placed, and the calls on them.
#pragma once

#include <string>
#include <vector>

#include "common/control/epoch.h"
#include "daemon/api/orphans_api.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

// An epoch of the first term, which is the one of a coordinator that has started once.
constexpr int64_t FirstTerm(int count) { return control::kEpochCounts + count; }

// What another coordinator once placed: `ranks` of `world` of a job that may be unknown here.
inline v1::HeldAllocation HeldElsewhere(const std::string& uid, int64_t epoch, int world,
                                        const std::vector<int>& ranks,
                                        v1::RankState state = v1::TRAINING) {
  v1::Job job;
  job.set_uid(uid);
  job.set_epoch(epoch);
  v1::HeldAllocation held = Held(job, state, ranks);
  for (int i = 0; i < held.ranks_size(); ++i) held.mutable_ranks(i)->set_slot(i);
  held.set_world_size(world);
  held.set_job_name("elsewhere");
  return held;
}

class OrphansTest : public CoreTest {
 protected:
  const v1::StoredAllocation* Row(const std::string& uid, int64_t epoch, const std::string& node) {
    return core_->ledger().FindAllocation({uid, epoch, node});
  }
  bool IsOrphan(const std::string& uid, int64_t epoch, const std::string& node) {
    const v1::StoredAllocation* row = Row(uid, epoch, node);
    return row != nullptr && row->state() == v1::ORPHANED;
  }
  Worker Return(const std::string& node, int slots, const std::vector<v1::HeldAllocation>& held) {
    Worker worker{.node = node, .uid = base::NewUid(), .link = nullptr};
    Connect(&worker, slots, held);
    return worker;
  }
  std::vector<v1::Orphan> Orphans() {
    v1::ListOrphansResponse response;
    core_->api().orphans().List(&response);
    return {response.orphans().begin(), response.orphans().end()};
  }
  StatusOr<v1::Job> Adopt(const std::string& uid, const std::string& name = "") {
    v1::AdoptRequest request;
    request.set_job_uid(uid);
    request.set_name(name);
    v1::Job job;
    const Status status = core_->api().orphans().Adopt(request, "operator", &job);
    Settle();
    if (!status.ok()) return status;
    return job;
  }
  Status KillOrphan(const std::string& node, const std::string& uid) {
    v1::KillOrphanRequest request;
    request.set_node(node);
    request.set_job_uid(uid);
    v1::KillOrphanResponse response;
    const Status status = core_->api().orphans().Kill(request, "operator", &response);
    Settle();
    return status;
  }
  // The agent answers a HeldRequest.
  void ReportHeld(Worker& worker, const std::vector<v1::HeldAllocation>& held) {
    v1::WorkerMessage message;
    message.mutable_held_report();
    for (const v1::HeldAllocation& one : held)
      *message.mutable_held_report()->add_allocations() = one;
    Report(worker, message);
  }
  static v1::HeldAllocation WithAssign(v1::HeldAllocation held, const v1::JobSpec& spec,
                                       int64_t created_us = 0) {
    v1::Assign* assign = held.mutable_assign();
    assign->set_job_uid(held.job_uid());
    assign->set_epoch(held.epoch());
    assign->set_world_size(held.world_size());
    assign->set_namespace_("team");
    assign->set_created_us(created_us);
    assign->set_restart("token");
    *assign->mutable_spec() = spec;
    return held;
  }
  static int CountHeldRequests(const Worker& worker, bool with_assign) {
    int count = 0;
    for (const auto& message : worker.link->received)
      count += message.has_held_request() && message.held_request().with_assign() == with_assign;
    return count;
  }
};

}  // namespace mt::daemon
