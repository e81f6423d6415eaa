// The ranks of one job and epoch on this node, and how to find one of them: by its world rank, by
// its process, by its call. The set is fixed when it is made; the ranks change. Loop thread only;
// no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/node/ranks/local_rank.h"

namespace megatrain::v1 {
class AllocationRecord;
class RankHello;
class RankStatus;
}  // namespace megatrain::v1

namespace mt::node {

class RankSet {
 public:
  // The ranks of the record, SPAWNED and without a process. `rank_state`: the folder below which
  // each allocation has its own (NodeFacts).
  RankSet(const megatrain::v1::AllocationRecord& record, const std::string& rank_state);
  // Other objects point to its ranks.
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  // In the order of the record. Addresses stay valid as long as the set.
  std::vector<LocalRank>& all() { return ranks_; }
  const std::vector<LocalRank>& all() const { return ranks_; }

  // nullptr if there is none.
  LocalRank* Find(int rank);
  LocalRank* FindByLink(LinkId link);
  const LocalRank* FindByLink(LinkId link) const;
  LocalRank* FindByLaunch(LaunchId launch);
  const LocalRank* FindByLaunch(LaunchId launch) const;

  bool UsesSlot(int slot) const;
  bool UsesGpu(const std::string& uuid) const;
  // UUIDs of the GPUs that the ranks were given, gone ranks included.
  std::vector<std::string> Gpus() const;
  // True if no rank has a process any more; also if there are no ranks.
  bool AllGone() const;

  // Binds the call of a rank to it and takes over pid, step and state from its hello.
  // kFailedPrecondition if the rank is not here, has ended, or shows a wrong token.
  StatusOr<LocalRank*> Attach(LinkId link, const megatrain::v1::RankHello& hello);
  // Fills in the status that the coordinator gets, all but the stall.
  static void Describe(const LocalRank& rank, megatrain::v1::RankStatus* out);

 private:
  const std::string job_uid_;
  const int64_t epoch_;
  std::vector<LocalRank> ranks_;
};

}  // namespace mt::node
