// One look at the queue and the fleet per round; which slots fit is decided in daemon/scheduler.
#include "daemon/keeper/placer.h"

#include <algorithm>
#include <utility>

#include "common/control/epoch.h"
#include "common/spec/validate.h"
#include "daemon/authority/authority.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_bases.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/restore_gate.h"
#include "daemon/keeper/roll_call.h"
#include "daemon/membership/lease_table.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

// DEVICE_TYPE_UNSPECIFIED stands for auto.
v1::DeviceType DeviceOf(const v1::JobSpec& spec) {
  if (!spec.placement().has_device()) return v1::DEVICE_TYPE_UNSPECIFIED;
  return spec.placement().device() == v1::Placement::DEVICE_GPU ? v1::GPU : v1::CPU_SLOT;
}

// A job as far as its spec says how it is placed.
WaitingJob AsWaiting(const v1::JobSpec& spec) {
  const v1::Placement& placement = spec.placement();
  return {.priority = spec.priority(),
          .num_slots = placement.slots(),
          .group = std::max<int64_t>(1, spec.parallel().tensor()),
          .device = DeviceOf(spec),
          .selector = {placement.node_selector().begin(), placement.node_selector().end()},
          .exclusive = placement.exclusive()};
}

// Decides what device auto becomes with these nodes.
void TakeDevice(const std::vector<FleetNode>& fleet, WaitingJob* waiting) {
  if (waiting->device == v1::DEVICE_TYPE_UNSPECIFIED)
    waiting->device = TakesGpus(*waiting, fleet, v1::GPU) ? v1::GPU : v1::CPU_SLOT;
  waiting->slot_kind = waiting->device == v1::GPU ? "GPU" : "CPU";
}

std::vector<PlacedRank> PlaceNow(const WaitingJob& waiting, const Offered& offered) {
  return Place(offered.offers, {.num_ranks = waiting.num_slots, .group = waiting.group});
}

// What the nodes offer without those that the job is to leave out, or with them where the others do
// not suffice even for it alone.
Offered OfferElsewhere(const v1::StoredJob& stored, const WaitingJob& waiting,
                       const std::vector<FleetNode>& fleet) {
  if (stored.left_out_nodes().empty()) return OfferTo(waiting, fleet);
  std::vector<FleetNode> others = fleet;
  std::erase_if(others, [&stored](const FleetNode& node) {
    return std::ranges::find(stored.left_out_nodes(), node.name) != stored.left_out_nodes().end();
  });
  const Offered offered = OfferTo(waiting, others);
  return FitsCluster(waiting, offered) ? offered : OfferTo(waiting, fleet);
}

// Where the job's ranks are, or were.
std::vector<PlacedRank> SlotsOf(const v1::Job& job) {
  std::vector<PlacedRank> slots;
  for (const v1::RankStatus& rank : job.ranks())
    slots.push_back({rank.rank(), rank.node(), rank.slot()});
  return slots;
}

std::string AheadInQueue(const std::string& name) {
  return fmt::format("job '{}' is ahead in the queue", name);
}

std::string LaterOrphanText(const std::string& node) {
  return fmt::format(
      "ranks of a later epoch are on node {}, and are taken over once all of them are heard (mtctl "
      "get orphans)",
      node);
}

// The UUID of the slot's GPU; "" for a CPU slot.
std::string GpuOf(const v1::Node& node, int slot) {
  const auto found = std::ranges::find(node.slots(), slot, &v1::Slot::index);
  return found == node.slots().end() ? "" : found->gpu().uuid();
}

// The faults of a job that takes GPUs and cannot run on them; said before anything is waited for.
spec::Faults FaultsOnGpus(v1::JobSpec job) { return spec::ResolveForSlots({.gpu = true}, &job); }

}  // namespace

std::map<std::string, std::map<int, std::string>> Placer::TakenSlots(std::string_view except) {
  std::map<std::string, std::map<int, std::string>> taken;
  for (const v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    if (job.state() != v1::RECOVERING || job.uid() == except) continue;
    for (const v1::RankStatus& rank : job.ranks()) taken[rank.node()][rank.slot()] = job.uid();
  }
  for (const v1::StoredAllocation* allocation : parts_.ledger->Allocations()) {
    std::map<int, std::string>& slots = taken[allocation->node()];
    for (const int slot : allocation->slots()) slots[slot] = allocation->job_uid();
  }
  return taken;
}

std::vector<WaitingJob> Placer::Queue() {
  std::vector<WaitingJob> queue;
  for (const v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    if (job.state() != v1::QUEUED) continue;
    WaitingJob& waiting = queue.emplace_back(AsWaiting(job.spec()));
    waiting.uid = job.uid();
    waiting.name = job.name();
    waiting.created_us = job.created_us();
    waiting.num_slots = job.slots();
    waiting.stands_back = AwaitsBase(*stored);
    waiting.goes_first = stored->goes_first();
  }
  SortQueue(&queue);
  return queue;
}

std::vector<FleetNode> Placer::Fleet(std::string_view except) {
  auto taken = TakenSlots(except);
  std::vector<FleetNode> fleet;
  for (const v1::StoredWorker* worker : parts_.ledger->Workers()) {
    const v1::Node& node = worker->node();
    if (parts_.leases->StateOf(node.name()) != v1::NODE_READY ||
        !parts_.hub->IsConnected(node.name())) {
      continue;
    }
    FleetNode out{
        .name = node.name(), .labels = {node.labels().begin(), node.labels().end()}, .slots = {}};
    const std::map<int, std::string>& slots = taken[node.name()];
    for (const v1::Slot& slot : node.slots()) {
      out.slots.push_back({.index = slot.index(),
                           .device = slot.device(),
                           .taken = slots.contains(slot.index()),
                           .out_of_order = !slot.out_of_order().empty(),
                           .why = slot.out_of_order()});
    }
    for (const auto& [slot, uid] : slots) {
      const v1::StoredJob* holder = parts_.ledger->FindJob(uid);
      out.exclusively_taken |= holder != nullptr && holder->job().spec().placement().exclusive();
    }
    fleet.push_back(std::move(out));
  }
  return fleet;
}

bool Placer::IsHeldBack(v1::StoredJob& stored) {
  std::string why;
  if (!parts_.restore_gate->IsOpen()) {
    why = parts_.restore_gate->Why();
  } else if (const std::string node = LaterOrphan(stored.job().uid()); !node.empty()) {
    why = LaterOrphanText(node);
  } else if (!parts_.roll_call->IsOver()) {
    why = std::string(RollCall::kWhy);
  }
  if (!why.empty()) Wait(stored, why);
  return !why.empty();
}

void Placer::RunRecovering() {
  for (v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    if (!IsFenced(*stored)) continue;
    if (parts_.clock->Now() < parts_.keeper->runtimes().RetryAt(job.uid())) continue;
    if (IsHeldBack(*stored)) continue;
    WaitingJob waiting = AsWaiting(job.spec());
    waiting.uid = job.uid();
    waiting.num_slots = job.slots();
    const std::vector<FleetNode> fleet = Fleet(job.uid());
    TakeDevice(fleet, &waiting);
    const Offered offered = OfferElsewhere(*stored, waiting, fleet);
    const std::vector<PlacedRank> placed = PlaceAgain(
        SlotsOf(job), offered.offers, {.num_ranks = waiting.num_slots, .group = waiting.group});
    stored->set_goes_first(true);  // also where an agent refuses this placement
    if (!placed.empty()) {
      Start(*stored, placed, waiting.device == v1::GPU);
      continue;
    }
    parts_.keeper->Raise(*stored, JobEvent::kNoRoom, {.text = WaitReason(waiting, offered)});
  }
}

void Placer::Run() {
  if (!parts_.authority->GivesOrders()) return;
  RunRecovering();
  std::vector<WaitingJob> queue = Queue();
  if (queue.empty()) return;
  if (!parts_.restore_gate->IsOpen()) {
    for (const WaitingJob& waiting : queue)
      Wait(*parts_.ledger->FindJob(waiting.uid), parts_.restore_gate->Why());
    return;
  }
  std::vector<FleetNode> fleet = Fleet();
  std::string ahead;  // a job that fits the cluster, but not now
  for (WaitingJob& waiting : queue) {
    v1::StoredJob& stored = *parts_.ledger->FindJob(waiting.uid);
    if (const std::string node = LaterOrphan(waiting.uid); !node.empty()) {
      Wait(stored, LaterOrphanText(node));
      continue;
    }
    if (!ChooseDevice(stored, fleet, &waiting)) continue;
    const Offered offered = OfferElsewhere(stored, waiting, fleet);
    const bool fits = FitsCluster(waiting, offered);
    if (fits && !ahead.empty()) {
      if (!waiting.stands_back) Wait(stored, AheadInQueue(ahead));
      continue;
    }
    // Its last placement failed a moment ago; it keeps its place, the others may go on.
    if (parts_.clock->Now() < parts_.keeper->runtimes().RetryAt(waiting.uid)) continue;
    const std::vector<PlacedRank> placed = PlaceNow(waiting, offered);
    if (!placed.empty() && !parts_.roll_call->IsOver()) {
      if (!waiting.stands_back) Wait(stored, std::string(RollCall::kWhy));
      continue;
    }
    if (!placed.empty()) {
      Start(stored, placed, waiting.device == v1::GPU);
      fleet = Fleet();
      continue;
    }
    // What it waits for is not slots, and nobody waits behind it.
    if (waiting.stands_back) continue;
    Wait(stored, WaitReason(waiting, offered));
    if (fits) ahead = waiting.name;
  }
}

std::string Placer::AheadOf(int64_t priority, const std::vector<FleetNode>& fleet) {
  std::vector<WaitingJob> queue = Queue();
  for (WaitingJob& waiting : queue) {
    if (waiting.stands_back || waiting.priority < priority) break;
    if (!LaterOrphan(waiting.uid).empty()) continue;
    TakeDevice(fleet, &waiting);
    const Offered offered = OfferTo(waiting, fleet);
    if (FitsCluster(waiting, offered) && PlaceNow(waiting, offered).empty()) return waiting.name;
  }
  return "";
}

Placer::Prospect Placer::ProspectOf(const v1::JobSpec& spec) {
  const std::vector<FleetNode> fleet = Fleet();
  WaitingJob asked = AsWaiting(spec);
  TakeDevice(fleet, &asked);
  Prospect out{.starts = false, .why = "", .device = asked.device};
  const Offered offered = OfferTo(asked, fleet);
  if (!parts_.restore_gate->IsOpen()) {
    out.why = parts_.restore_gate->Why();
  } else if (PlaceNow(asked, offered).empty()) {
    out.why = WaitReason(asked, offered);
  } else if (const std::string ahead = AheadOf(asked.priority, fleet); !ahead.empty()) {
    out.why = AheadInQueue(ahead);
  } else if (!parts_.roll_call->IsOver()) {
    out.why = std::string(RollCall::kWhy);
  } else {
    out.starts = true;
  }
  return out;
}

std::string Placer::LaterOrphan(const std::string& uid) const {
  const int64_t epoch = parts_.ledger->FindJob(uid)->job().epoch();
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOfJob(uid)) {
    if (allocation->state() == v1::ORPHANED && allocation->epoch() > epoch)
      return allocation->node();
  }
  return "";
}

bool Placer::ChooseDevice(v1::StoredJob& stored, const std::vector<FleetNode>& fleet,
                          WaitingJob* waiting) {
  const bool is_auto = waiting->device == v1::DEVICE_TYPE_UNSPECIFIED;
  TakeDevice(fleet, waiting);
  if (!is_auto || waiting->device != v1::GPU) return true;
  const spec::Faults faults = FaultsOnGpus(stored.job().spec());
  if (faults.empty()) return true;
  FailFor(stored, faults, "device auto takes GPUs where a node has any: ");
  return false;
}

spec::Faults Placer::FaultsNow(const v1::JobSpec& spec) {
  if (DeviceOf(spec) != v1::DEVICE_TYPE_UNSPECIFIED) return {};
  const auto& selector = spec.placement().node_selector();
  const WaitingJob job{.selector = {selector.begin(), selector.end()}};
  return TakesGpus(job, Fleet(), v1::GPU) ? FaultsOnGpus(spec) : spec::Faults();
}

void Placer::FailFor(v1::StoredJob& stored, const spec::Faults& faults, const char* prefix) {
  parts_.keeper->Fail(
      stored,
      {.cause = v1::USER_ERROR, .rank = -1, .message = prefix + spec::FormatFaults(faults)});
}

void Placer::Wait(v1::StoredJob& stored, const std::string& why) {
  v1::Job* job = stored.mutable_job();
  if (job->message() == why && HasCondition(*job, "Waiting")) return;
  job->set_message(why);
  SetCondition(job, "Waiting", why, parts_.ledger->NowMicros());
  parts_.ledger->MarkJob(stored, Change::kState);
}

void Placer::Start(v1::StoredJob& stored, const std::vector<PlacedRank>& placed, bool on_gpus) {
  const int64_t epoch = EpochFor(stored);
  if (epoch == 0) return;
  v1::Job* job = stored.mutable_job();
  spec::SlotFacts facts{
      .gpu = on_gpus, .cores_per_node = std::numeric_limits<int64_t>::max(), .slots_per_node = 1};
  for (const PlacedRank& rank : placed) {
    const v1::Node& node = parts_.ledger->FindWorker(rank.node)->node();
    const auto cpu_slots = std::ranges::count(node.slots(), v1::CPU_SLOT, &v1::Slot::device);
    facts.cores_per_node = std::min<int64_t>(facts.cores_per_node, std::max(1, node.cores()));
    facts.slots_per_node = std::max<int64_t>(facts.slots_per_node, cpu_slots);
  }
  const spec::Faults faults = spec::ResolveForSlots(facts, job->mutable_spec());
  if (!faults.empty()) return FailFor(stored, faults, "");
  CompleteRestart(&stored);
  job->set_epoch(epoch);
  job->clear_ranks();
  std::map<std::string, std::unique_ptr<v1::StoredAllocation>> by_node;
  for (const PlacedRank& rank : placed) {
    v1::RankStatus* status = job->add_ranks();
    status->set_rank(rank.rank);
    status->set_node(rank.node);
    status->set_slot(rank.slot);
    status->set_gpu(GpuOf(parts_.ledger->FindWorker(rank.node)->node(), rank.slot));
    auto& allocation = by_node[rank.node];
    if (allocation == nullptr) {
      allocation = std::make_unique<v1::StoredAllocation>();
      allocation->set_job_uid(job->uid());
      allocation->set_epoch(job->epoch());
      allocation->set_node(rank.node);
      allocation->set_worker_uid(parts_.ledger->FindWorker(rank.node)->node().uid());
      allocation->set_state(v1::RESERVED);
    }
    allocation->add_ranks(rank.rank);
    allocation->add_slots(rank.slot);
  }
  parts_.keeper->placement().Placed(stored);
  for (auto& [node, allocation] : by_node) {
    SendAssign(stored, *parts_.ledger->AddAllocation(std::move(allocation)));
  }
}

int64_t Placer::EpochFor(v1::StoredJob& stored) {
  const int64_t last = stored.job().epoch();
  const int64_t next = control::NextEpoch(last, parts_.ledger->Cluster().term());
  if (next == 0) {
    Wait(stored,
         fmt::format("epoch {} was the last one of its term: restart the coordinator, which "
                     "begins another term",
                     control::EpochText(last)));
  }
  return next;
}

void Placer::SendAssign(const v1::StoredJob& stored, const v1::StoredAllocation& allocation) {
  const v1::Job& job = stored.job();
  v1::CoordinatorMessage message;
  v1::Assign* assign = message.mutable_assign();
  assign->set_job_uid(job.uid());
  assign->set_epoch(job.epoch());
  *assign->mutable_spec() = job.spec();
  if (job.has_last_checkpoint()) {
    // It has a base: it goes on from what it saved, wherever it once began, and whatever is pruned.
    v1::Checkpoint* checkpoint = assign->mutable_spec()->mutable_checkpoint();
    checkpoint->clear_load();
    checkpoint->clear_load_tag();
    checkpoint->set_load_kind(v1::Checkpoint::LOAD_KIND_RESUME);
    checkpoint->set_fresh(false);
  }
  FillBase(stored, assign);
  assign->set_namespace_(job.namespace_());
  assign->set_created_us(job.created_us());
  assign->set_hold(stored.assigned_hold());
  if (HasCheckpoints(job)) {
    for (std::string& uid : parts_.ledger->EndedInDirectory(job.spec().checkpoint().directory())) {
      assign->add_ended_job_uids(std::move(uid));
    }
  }
  assign->set_world_size(job.ranks_size());
  assign->set_threads_per_rank(static_cast<int32_t>(job.spec().placement().threads_per_rank()));
  for (int i = 0; i < allocation.ranks_size(); ++i) {
    v1::RankPlacement* rank = assign->add_ranks();
    rank->set_rank(allocation.ranks(i));
    rank->set_slot(allocation.slots(i));
  }
  parts_.hub->Send(allocation.node(), std::move(message));
}

}  // namespace mt::daemon
