// Checkpoints that jobs of kinds generate and eval have named: while such a job lives, the job that
// saved the checkpoint is told to prune it not. Compared again and again, so that nothing depends
// on who came first, or on a coordinator that was gone meanwhile. Not thread-safe (the core's
// thread).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class ReaderPins {
 public:
  explicit ReaderPins(const KeeperTools& tools) : tools_(tools) {}

  // Gives rank 0 of each job that saves, or ends and may still save, a command (KEEP_STEPS) with
  // the steps of its directory that living readers have named, where these are others than it was
  // told in this epoch, or where nobody here knows what it was told. A reader whose node is lost
  // (L1) counts no more.
  void Tick();
  // The ranks of the job did not take the command, which is not given again before others are
  // wanted: an event CheckpointNotKept at each reader that named one of the steps.
  void Refused(const v1::StoredJob& job, std::string_view why) const;
  // The ranks of the job's epoch may have been told others by another store.
  static void ForgetTold(v1::StoredJob* job);

 private:
  bool IsLost(const v1::Job& job) const;
  // False where another store may have told the ranks others since.
  bool KnowsTold(const v1::StoredJob& job) const;
  // Steps by directory.
  std::map<std::string, std::set<int64_t>> Wanted() const;

  const KeeperTools tools_;
};

}  // namespace mt::daemon
