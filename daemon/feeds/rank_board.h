// The newest reading of each rank of the jobs that run, as their agents report them once a second.
// In memory only: after a restart of the coordinator it fills again within a second. Not
// thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/base/clock.h"

namespace megatrain::v1 {
class Job;
class RankReading;
class RankReadings;
class ReadRanksResponse;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;

class RankBoard {
 public:
  // The clock outlives the board.
  explicit RankBoard(const base::Clock* clock);
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;
  ~RankBoard();

  // Takes readings of the job's open epoch from `node`; those of ranks that are not there are
  // dropped. The first of an epoch removes those of the one before.
  void Take(const v1::Job& job, const std::string& node, const v1::RankReadings& readings);
  // Adds the job's readings with their ages now; nothing where it has none.
  void Fill(const std::string& uid, v1::ReadRanksResponse* out) const;
  void FillAll(v1::ReadRanksResponse* out) const;
  // Takes the job as it is now: readings of one that no longer runs, or of a closed epoch, go.
  void Publish(const v1::Job& job);
  void Forget(const std::string& uid);

 private:
  struct Rank {
    std::unique_ptr<const v1::RankReading> reading;
    base::MonotonicTime taken;
  };
  struct JobRanks {
    int64_t epoch = 0;
    std::map<int, Rank> ranks;
  };
  const base::Clock* clock_;
  std::map<std::string, JobRanks> jobs_;  // by uid
};

}  // namespace mt::daemon
