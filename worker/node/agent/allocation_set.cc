// A node holds few allocations: all but the search by job and epoch are passes over them.
#include "worker/node/agent/allocation_set.h"

#include <algorithm>

#include "common/control/held_digest.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {
namespace {

// Assignments in one report of what is held: the rest of a message (A2) is for everything else.
constexpr size_t kMaxAssignBytes = 3 << 20;

}  // namespace

Allocation* AllocationSet::Add(std::unique_ptr<Allocation> allocation) {
  const JobEpoch job(allocation->job_uid(), allocation->epoch());
  int64_t& newest = newest_[job.first];
  newest = std::max(newest, job.second);
  Allocation* added = allocation.get();
  all_[job] = std::move(allocation);
  return added;
}

Allocation* AllocationSet::Find(const JobEpoch& job) const {
  const auto found = all_.find(job);
  return found == all_.end() ? nullptr : found->second.get();
}

Allocation* AllocationSet::FindByLaunch(LaunchId launch) const {
  for (const auto& [job, allocation] : all_) {
    if (allocation->ranks().FindByLaunch(launch) != nullptr) return allocation.get();
  }
  return nullptr;
}

std::optional<int64_t> AllocationSet::NewestEpoch(const std::string& job_uid) const {
  const auto found = newest_.find(job_uid);
  if (found == newest_.end()) return std::nullopt;
  return found->second;
}

bool AllocationSet::IsLive(const std::string& job_uid) const {
  return std::ranges::any_of(
      all_, [&](const auto& a) { return a.first.first == job_uid && !a.second->gone(); });
}

int AllocationSet::num_live() const {
  return static_cast<int>(
      std::ranges::count_if(all_, [](const auto& a) { return !a.second->gone(); }));
}

uint64_t AllocationSet::HeldDigest() const {
  uint64_t sum = 0;
  for (const auto& [job, allocation] : all_) {
    if (allocation->gone()) continue;
    for (const LocalRank& rank : allocation->ranks().all())
      sum += control::HeldRankHash(job.first, job.second, rank.rank, rank.end_reported);
  }
  return sum;
}

void AllocationSet::Describe(bool with_assign, megatrain::v1::HeldReport* report) const {
  size_t assign_bytes = 0;
  for (const auto& [job, allocation] : all_) {
    if (allocation->gone()) continue;
    auto& held = *report->add_allocations();
    allocation->Describe(&held);
    assign_bytes += allocation->assign().ByteSizeLong();
    // Beyond a message's size the others are asked for again, once these are adopted or gone.
    if (with_assign && assign_bytes <= kMaxAssignBytes)
      *held.mutable_assign() = allocation->assign();
  }
}

bool AllocationSet::OnlyLeftRunning() const {
  return std::ranges::all_of(
      all_, [](const auto& a) { return a.second->gone() || !a.second->stops_with_agent(); });
}

// A rank of an earlier agent, which may have offered other slots, keeps both the slot's number, by
// which the coordinator knows it, and its GPU.
std::optional<NodeSlots::User> AllocationSet::UserOf(int slot, const std::string& gpu) const {
  for (const auto& [job, allocation] : all_) {
    if (allocation->UsesSlot(slot) || (!gpu.empty() && allocation->UsesGpu(gpu))) {
      return NodeSlots::User{.job_uid = job.first, .epoch = job.second};
    }
  }
  return std::nullopt;
}

}  // namespace mt::node
