// Whom this agent obeys, as it is on disk: STATE/cluster.bin (worker/node/ranks/FORMAT.md). Blocks
// on the local disk.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace mt::node {

// What an agent knows of its cluster; empty and 0: nothing yet.
struct ClusterState {
  std::string cluster_id;
  int64_t term = 0;             // the newest one that it has obeyed
  std::string coordinator_uid;  // the coordinator's start that the term was obeyed from

  bool operator==(const ClusterState&) const = default;
};

// Keeps it; replaced in tests.
class ClusterStore {
 public:
  virtual ~ClusterStore() = default;
  // Returns once it would survive a power loss.
  virtual Status Save(const ClusterState& state) = 0;
};

class ClusterFile final : public ClusterStore {
 public:
  // `state_dir` is the agent's --state, which the caller has locked.
  explicit ClusterFile(const std::string& state_dir);
  // Nothing known where there is no file. kDataLoss where it is damaged, an error of the file
  // system where it cannot be read; the message says what to do. Whoever cannot tell whom to obey
  // must obey nobody.
  StatusOr<ClusterState> Load() const;
  Status Save(const ClusterState& state) override;

 private:
  std::string path_;
};

// `mt-worker join`: from now on the agent of this folder belongs to that cluster, and obeys the
// first of its coordinators that it meets. The caller has locked the folder. kInvalidArgument:
// not the id of a cluster.
Status JoinCluster(const std::string& state_dir, const std::string& cluster_id);

}  // namespace mt::node
