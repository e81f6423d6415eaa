// Rows in the ledger say which orphans there are; what their ranks do is known from their agents
// only, and is said again with every registration.
#include "daemon/workers/orphans.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "common/rpc/reason.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/allocations.h"
#include "daemon/keeper/closed.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/workers/held_check.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

AllocationKey KeyOf(const v1::StoredAllocation& row) {
  return {row.job_uid(), row.epoch(), row.node()};
}

std::string Joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + text;
  return out;
}

Status Refused(std::string_view why) {
  return rpc::WithReason(base::FailedPrecondition("{}", why), reason::kWrongState);
}

}  // namespace

Orphans::Orphans(const Parts& parts) : parts_(parts) {}
Orphans::~Orphans() = default;

bool Orphans::Contains(const AllocationKey& key) const {
  const v1::StoredAllocation* row = parts_.ledger->FindAllocation(key);
  return row != nullptr && row->state() == v1::ORPHANED;
}

void Orphans::FillRow(const v1::HeldAllocation& held, v1::StoredAllocation* row) {
  row->set_world_size(held.world_size());
  row->set_job_name(held.job_name());
  if (held.has_assign()) row->set_assign(held.assign().SerializeAsString());
  row->clear_ranks();
  row->clear_slots();
  row->clear_ended();
  for (const v1::RankStatus& rank : held.ranks()) {
    row->add_ranks(rank.rank());
    row->add_slots(rank.slot());
    row->add_ended(rank.exited());
  }
}

v1::StoredAllocation* Orphans::AddRow(const AllocationKey& key, const v1::HeldAllocation& held) {
  auto row = std::make_unique<v1::StoredAllocation>();
  row->set_job_uid(key.job_uid);
  row->set_epoch(key.epoch);
  row->set_node(key.node);
  row->set_worker_uid(parts_.ledger->FindWorker(key.node)->node().uid());
  row->set_state(v1::ORPHANED);
  FillRow(held, row.get());
  v1::StoredAllocation* kept = parts_.ledger->AddAllocation(std::move(row));
  parts_.ledger->AddEvent(
      {.type = "RanksOrphaned",
       .message = fmt::format("{} of {} ranks of job '{}' (uid {}) run there in epoch {}, which "
                              "this store does not know; nothing is done to them",
                              held.ranks_size(), held.world_size(), held.job_name(), key.job_uid,
                              control::EpochText(key.epoch)),
       .job_uid = key.job_uid,
       .node = key.node});
  log::Warn("orphaned ranks", {{"job_uid", key.job_uid},
                               {"epoch", control::EpochText(key.epoch)},
                               {"node", key.node},
                               {"ranks", held.ranks_size()}});
  return kept;
}

void Orphans::Found(WorkerSession& from, const v1::HeldAllocation& held) {
  const AllocationKey key{held.job_uid(), held.epoch(), from.node};
  v1::StoredAllocation* row = parts_.ledger->FindAllocation(key);
  if (row == nullptr) {
    row = AddRow(key, held);
  } else {
    if (!MoveAllocation(parts_.ledger, *row, v1::ORPHANED)) return;
    FillRow(held, row);
    parts_.ledger->MarkAllocation(*row);
  }
  if (row->assign().empty() && !from.asked_for_assign) {
    from.asked_for_assign = true;
    AskForHeld(parts_.hub, key.node, /*with_assign=*/true);
  }
  said_[key] = std::make_unique<v1::HeldAllocation>(held);
  said_[key]->clear_assign();
  AdoptIfComplete(key.job_uid, key.epoch);
}

void Orphans::TakeStatus(const AllocationKey& key, const v1::RankStatus& status) {
  const auto said = said_.find(key);
  if (said == said_.end()) return;
  for (v1::RankStatus& rank : *said->second->mutable_ranks()) {
    if (rank.rank() != status.rank()) continue;
    const int slot = rank.slot();
    rank = status;
    rank.set_slot(slot);
  }
}

void Orphans::Tick() {
  for (auto it = said_.begin(); it != said_.end();) {
    const AllocationKey& key = it->first;
    v1::StoredAllocation* row = parts_.ledger->FindAllocation(key);
    if (row == nullptr || row->state() != v1::ORPHANED) {
      it = said_.erase(it);
      continue;
    }
    if (IsClosed(parts_.ledger, key)) {
      MoveAllocation(parts_.ledger, *row, v1::FREEING);
      parts_.keeper->commands().SendKill({key.job_uid, key.epoch}, key.node,
                                         "this epoch is closed");
    }
    ++it;
  }
}

Orphans::World Orphans::Gather(const std::string& job_uid, int64_t epoch) {
  World world;
  std::map<int, v1::RankStatus> ranks;
  std::vector<std::string> silent;
  for (const v1::StoredAllocation* row : parts_.ledger->AllocationsOfJob(job_uid)) {
    if (row->epoch() != epoch || row->state() != v1::ORPHANED) continue;
    world.nodes.push_back(row->node());
    world.size = std::max(world.size, row->world_size());
    const auto said = said_.find(KeyOf(*row));
    if (said == said_.end() || !parts_.hub->IsConnected(row->node())) {
      silent.push_back(row->node());
      continue;
    }
    for (const v1::RankStatus& rank : said->second->ranks()) {
      if (rank.exited()) continue;
      ranks[rank.rank()] = rank;
      ranks[rank.rank()].set_node(row->node());
    }
  }
  // Agents of before there were orphans do not say how many ranks there are.
  const v1::StoredJob* job = parts_.ledger->FindJob(job_uid);
  if (world.size == 0 && job != nullptr) world.size = job->job().slots();
  std::string gone;
  for (int rank = 0; rank < world.size; ++rank) {
    if (!ranks.contains(rank)) gone += fmt::format("{}{}", gone.empty() ? "" : ", ", rank);
  }
  for (auto& [rank, status] : ranks) world.ranks.push_back(std::move(status));
  if (!silent.empty()) {
    world.missing = fmt::format("node {} is not heard", Joined(silent));
  } else if (world.size == 0) {
    world.missing = "its agents do not say how many ranks it has";
  } else if (!gone.empty()) {
    world.missing = fmt::format("rank {} of {} is on no node that was heard", gone, world.size);
  }
  return world;
}

int64_t Orphans::NewestEpoch(const std::string& job_uid) {
  int64_t newest = 0;
  for (const v1::StoredAllocation* row : parts_.ledger->AllocationsOfJob(job_uid)) {
    if (row->state() == v1::ORPHANED) newest = std::max(newest, row->epoch());
  }
  return newest;
}

void Orphans::Adopt(v1::StoredJob& job, int64_t epoch, const World& world, const Order& order) {
  log::Info(
      "orphaned ranks are adopted",
      {{"job", job.job().name()}, {"epoch", control::EpochText(epoch)}, {"ranks", world.size}});
  parts_.keeper->adoption().Adopt(job, epoch, world.ranks, order);
  parts_.keeper->nodes().ShowReachability(job);
  for (const v1::StoredAllocation* row : parts_.ledger->AllocationsOfJob(job.job().uid()))
    said_.erase(KeyOf(*row));
}

void Orphans::AdoptIfComplete(const std::string& job_uid, int64_t epoch) {
  v1::StoredJob* job = parts_.ledger->FindJob(job_uid);
  if (job == nullptr || IsFinal(job->job().state()) || epoch != NewestEpoch(job_uid)) return;
  const World world = Gather(job_uid, epoch);
  if (world.missing.empty()) Adopt(*job, epoch, world, {.actor = "coordinator"});
}

std::string Orphans::WhyNotAdopted(const std::string& job_uid, int64_t epoch, const World& world) {
  if (!world.missing.empty()) return world.missing;
  const v1::StoredJob* job = parts_.ledger->FindJob(job_uid);
  if (job == nullptr) return "this store does not know the job (mtctl adopt rebuilds it)";
  if (IsFinal(job->job().state()))
    return fmt::format("the job is {} here", v1::JobState_Name(job->job().state()));
  return epoch == NewestEpoch(job_uid) ? "" : "a later epoch of the job was found";
}

void Orphans::List(v1::ListOrphansResponse* response) {
  std::set<JobEpoch> seen;
  for (const v1::StoredAllocation* row : parts_.ledger->Allocations()) {
    if (row->state() != v1::ORPHANED || !seen.insert({row->job_uid(), row->epoch()}).second)
      continue;
    const World world = Gather(row->job_uid(), row->epoch());
    v1::Orphan* orphan = response->add_orphans();
    orphan->set_job_uid(row->job_uid());
    orphan->set_job_name(row->job_name());
    orphan->set_epoch(row->epoch());
    orphan->mutable_nodes()->Assign(world.nodes.begin(), world.nodes.end());
    orphan->set_ranks(static_cast<int32_t>(world.ranks.size()));
    orphan->set_world_size(world.size);
    orphan->set_why(WhyNotAdopted(row->job_uid(), row->epoch(), world));
  }
}

StatusOr<int> Orphans::Kill(const std::string& node, const std::string& job_uid,
                            const Order& order) {
  int ranks = 0;
  for (v1::StoredAllocation* row : parts_.ledger->AllocationsOfJob(job_uid)) {
    if (row->node() != node || row->state() != v1::ORPHANED) continue;
    ranks += row->ranks_size();
    parts_.ledger->AddEvent(
        {.type = "OrphanKilled",
         .message = fmt::format("{} ranks of job '{}' (uid {}), epoch {}", row->ranks_size(),
                                row->job_name(), job_uid, control::EpochText(row->epoch())),
         .job_uid = job_uid,
         .node = node,
         .actor = order.actor,
         .reason = order.reason});
    MoveAllocation(parts_.ledger, *row, v1::FREEING);
    parts_.keeper->commands().SendKill({job_uid, row->epoch()}, node,
                                       fmt::format("killed as an orphan by {}", order.actor));
  }
  if (ranks > 0) return ranks;
  return rpc::WithReason(
      base::NotFound("node '{}' has no orphaned ranks of job {} (mtctl get orphans lists them)",
                     node, job_uid),
      reason::kUnknownJob);
}

StatusOr<std::string> Orphans::UidOf(const std::string& job_uid, const std::string& name) {
  std::set<std::string> uids;
  for (const v1::StoredAllocation* row : parts_.ledger->Allocations()) {
    if (row->state() != v1::ORPHANED) continue;
    if (job_uid.empty() ? row->job_name() == name : row->job_uid() == job_uid)
      uids.insert(row->job_uid());
  }
  if (uids.size() == 1) return *uids.begin();
  if (uids.size() > 1) {
    return rpc::WithReason(
        base::InvalidArgument("{} orphaned jobs have the name '{}': name one by its uid (mtctl get "
                              "orphans)",
                              uids.size(), name),
        reason::kInvalidRequest);
  }
  return rpc::WithReason(base::NotFound("no orphaned ranks of a job '{}' (mtctl get orphans lists "
                                        "what there is)",
                                        job_uid.empty() ? name : job_uid),
                         reason::kUnknownJob);
}

Status Orphans::CheckUnknown(const std::string& job_uid) {
  if (parts_.ledger->FindDeleted(job_uid) != nullptr)
    return Refused(fmt::format("job {} was deleted here: its epochs are closed", job_uid));
  const v1::StoredJob* job = parts_.ledger->FindJob(job_uid);
  if (job == nullptr) return OkStatus();
  if (IsFinal(job->job().state())) {
    return Refused(
        fmt::format("job '{}' is {} here; delete nothing, submit it again and it goes "
                    "on from its checkpoint, once its orphans are ended (mtctl node "
                    "kill-orphan)",
                    job->job().name(), v1::JobState_Name(job->job().state())));
  }
  return Refused(
      fmt::format("job '{}' is known here and is {}; it is adopted by itself as soon as "
                  "all of its ranks are there",
                  job->job().name(), v1::JobState_Name(job->job().state())));
}

StatusOr<std::unique_ptr<v1::StoredJob>> Orphans::Rebuild(const std::string& job_uid,
                                                          int64_t epoch) {
  v1::Assign assign;
  bool known = false;
  for (const v1::StoredAllocation* row : parts_.ledger->AllocationsOfJob(job_uid)) {
    if (row->epoch() != epoch || row->state() != v1::ORPHANED || row->assign().empty()) continue;
    known = assign.ParseFromString(row->assign());
    if (known) break;
  }
  if (!known) {
    // A report holds as many assignments as a message has room for.
    for (const v1::StoredAllocation* row : parts_.ledger->AllocationsOfJob(job_uid)) {
      if (row->state() == v1::ORPHANED) AskForHeld(parts_.hub, row->node(), /*with_assign=*/true);
    }
    return Refused("its assignment has not come from its agents yet; try again");
  }
  const std::string job_namespace =
      assign.namespace_().empty() ? assign.spec().namespace_() : assign.namespace_();
  const v1::StoredJob* same_name =
      parts_.ledger->FindJobByName(job_namespace, assign.spec().name());
  if (same_name != nullptr && !IsFinal(same_name->job().state())) {
    return rpc::WithReason(
        base::Error(absl::StatusCode::kAlreadyExists,
                    "another job '{}' is {} here (uid {}): cancel it first (mtctl cancel {})",
                    assign.spec().name(), v1::JobState_Name(same_name->job().state()),
                    same_name->job().uid(), assign.spec().name()),
        reason::kNameInUse);
  }
  auto stored = std::make_unique<v1::StoredJob>();
  v1::Job* job = stored->mutable_job();
  job->set_uid(job_uid);
  job->set_name(assign.spec().name());
  job->set_namespace_(job_namespace);
  job->set_state(v1::QUEUED);
  job->set_goal(v1::GOAL_RUN);
  job->set_failed_rank(-1);
  job->set_created_us(assign.created_us() != 0 ? assign.created_us()
                                               : parts_.ledger->NextCreatedMicros());
  job->set_slots(assign.world_size());
  *job->mutable_spec() = assign.spec();
  stored->set_restart(assign.restart());
  const v1::Resilience& resilience = job->spec().resilience();
  if (resilience.has_deadline())
    job->set_deadline_us(job->created_us() + resilience.deadline() * 1'000);
  return stored;
}

StatusOr<v1::StoredJob*> Orphans::Adopt(const std::string& job_uid, const std::string& name,
                                        const Order& order) {
  ASSIGN_OR_RETURN(const std::string uid, UidOf(job_uid, name));
  RETURN_IF_ERROR(CheckUnknown(uid));
  const int64_t epoch = NewestEpoch(uid);
  const World world = Gather(uid, epoch);
  if (!world.missing.empty()) {
    return Refused(
        fmt::format("job '{}' cannot be adopted: {}; it goes on where all of its ranks "
                    "are there, else end them (mtctl node kill-orphan)",
                    name.empty() ? uid : name, world.missing));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<v1::StoredJob> job, Rebuild(uid, epoch));
  v1::StoredJob* kept = parts_.ledger->AddJob(std::move(job));
  Adopt(*kept, epoch, world, order);
  return kept;
}

}  // namespace mt::daemon
