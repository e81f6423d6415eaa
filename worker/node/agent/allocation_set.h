// The allocations of this node, by job and epoch, until the coordinator knows their ends; and the
// newest epoch of every job that was ever placed here, by which an outdated assignment is refused.
// Loop thread only; no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "worker/node/gpus/node_slots.h"
#include "worker/node/ranks/allocation.h"

namespace megatrain::v1 {
class HeldReport;
}

namespace mt::node {

class AllocationSet {
 public:
  using JobEpoch = std::pair<std::string, int64_t>;  // job uid, epoch
  using Map = std::map<JobEpoch, std::unique_ptr<Allocation>>;

  // Keeps the allocation under its job and epoch and returns it.
  Allocation* Add(std::unique_ptr<Allocation> allocation);
  void Remove(const JobEpoch& job) { all_.erase(job); }

  // All, gone ones included, by job and epoch.
  const Map& all() const { return all_; }
  // nullptr if there is none.
  Allocation* Find(const JobEpoch& job) const;
  Allocation* FindByLaunch(LaunchId launch) const;

  // The newest epoch of this job that was added, also if it was removed since; nullopt: none.
  std::optional<int64_t> NewestEpoch(const std::string& job_uid) const;
  // True if an allocation of this job is not gone.
  bool IsLive(const std::string& job_uid) const;
  int num_live() const;
  // What this node holds, as heartbeats carry it (common/control/held_digest.h): the ranks of all
  // allocations that are not gone.
  uint64_t HeldDigest() const;
  // The same in full, with as many of their assignments as a message has room for.
  void Describe(bool with_assign, megatrain::v1::HeldReport* report) const;
  // True if every allocation is gone but those whose ranks outlive the agent.
  bool OnlyLeftRunning() const;
  // Who uses a slot (NodeSlots::Deps::user_of).
  std::optional<NodeSlots::User> UserOf(int slot, const std::string& gpu) const;

 private:
  Map all_;
  std::map<std::string, int64_t> newest_;  // by job uid
};

}  // namespace mt::node
