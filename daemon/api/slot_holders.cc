// The placer says what a job would find; the allocations, who has what is taken.
#include "daemon/api/slot_holders.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/spec/validate.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/placer.h"
#include "daemon/scheduler/placement.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

// Of a slot that its node does not have any more: unspecified.
v1::DeviceType DeviceOf(const v1::StoredWorker* worker, int slot) {
  if (worker == nullptr) return v1::DEVICE_TYPE_UNSPECIFIED;
  const auto& slots = worker->node().slots();
  const auto found = std::ranges::find(slots, slot, &v1::Slot::index);
  return found == slots.end() ? v1::DEVICE_TYPE_UNSPECIFIED : found->device();
}

void AddSlots(const v1::JobSpec& spec, const std::vector<FleetNode>& fleet,
              v1::WhoHoldsResponse* response) {
  const v1::Placement& placement = spec.placement();
  for (const v1::DeviceType device : {v1::CPU_SLOT, v1::GPU}) {
    const WaitingJob one{
        .num_slots = 1,
        .device = device,
        .selector = {placement.node_selector().begin(), placement.node_selector().end()},
        .exclusive = placement.exclusive()};
    const Offered offered = OfferTo(one, fleet);
    if (offered.total == 0) continue;
    v1::WhoHoldsResponse::Slots* const slots = response->add_slots();
    slots->set_device(device);
    slots->set_total(static_cast<int32_t>(offered.total));
    slots->set_free(static_cast<int32_t>(offered.free));
  }
}

}  // namespace

void SlotHolders::AddHolders(v1::WhoHoldsResponse* response) {
  struct Held {
    int32_t slots = 0;
    std::string name;  // where the job is not known here
  };
  std::map<std::tuple<std::string, v1::DeviceType, std::string>, Held> held;
  for (const v1::StoredAllocation* allocation : ledger_->Allocations()) {
    const v1::StoredWorker* const worker = ledger_->FindWorker(allocation->node());
    for (const int slot : allocation->slots()) {
      Held& entry = held[{allocation->node(), DeviceOf(worker, slot), allocation->job_uid()}];
      ++entry.slots;
      entry.name = allocation->job_name();
    }
  }
  // A job that waits for its next epoch keeps its slots without an allocation.
  for (const v1::StoredJob* stored : ledger_->LiveJobs()) {
    if (!IsFenced(*stored)) continue;
    const v1::Job& job = stored->job();
    for (const v1::RankStatus& rank : job.ranks()) {
      // Those of a lost node were counted above.
      if (ledger_->FindAllocation({job.uid(), job.epoch(), rank.node()}) != nullptr) continue;
      const v1::StoredWorker* const worker = ledger_->FindWorker(rank.node());
      ++held[{rank.node(), DeviceOf(worker, rank.slot()), job.uid()}].slots;
    }
  }
  for (const auto& [key, entry] : held) {
    const auto& [node, device, uid] = key;
    v1::WhoHoldsResponse::Holder* const holder = response->add_holders();
    holder->set_node(node);
    holder->set_device(device);
    holder->set_slots(entry.slots);
    holder->set_job_uid(uid);
    holder->set_name(entry.name);
    const v1::StoredJob* const job = ledger_->FindJob(uid);
    if (job == nullptr) continue;
    holder->set_name(job->job().name());
    holder->set_namespace_(job->job().namespace_());
    holder->set_state(job->job().state());
  }
}

Status SlotHolders::WhoHolds(const v1::WhoHoldsRequest& request, v1::WhoHoldsResponse* response) {
  if (static_cast<int64_t>(request.spec().ByteSizeLong()) > control::kMaxSpecBytes) {
    return rpc::WithReason(
        base::InvalidArgument("the job has more than {} bytes", control::kMaxSpecBytes),
        rpc::reason::kInvalidSpec);
  }
  v1::JobSpec spec = request.spec();
  const spec::Faults faults = spec::CompleteJob({.of_service = true}, &spec);
  if (!faults.empty()) return rpc::WithReason(spec::ToStatus(faults), rpc::reason::kInvalidSpec);
  const Placer::Prospect prospect = placer_->ProspectOf(spec);
  response->set_starts(prospect.starts);
  response->set_why(prospect.why);
  response->set_device(static_cast<v1::DeviceType>(prospect.device));
  AddSlots(spec, placer_->Fleet(), response);
  AddHolders(response);
  return OkStatus();
}

}  // namespace mt::daemon
