// A record of ranks and the fakes around them, for tests of one part of an allocation alone.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "tests/worker/node/agent/fakes.h"
#include "worker/node/ranks/rank_set.h"

namespace mt::node {

// `count` ranks of job-1, epoch 3, from rank 0 on: slot 10 + rank, token "token-RANK".
inline megatrain::v1::AllocationRecord RecordOf(int count) {
  megatrain::v1::AllocationRecord record;
  record.mutable_assign()->set_job_uid("job-1");
  record.mutable_assign()->set_epoch(3);
  for (int rank = 0; rank < count; ++rank) {
    auto& known = *record.add_ranks();
    known.set_rank(rank);
    known.set_slot(10 + rank);
    known.set_token("token-" + std::to_string(rank));
  }
  return record;
}

class RankPartsTest : public testing::Test {
 protected:
  RankPartsTest() : loop_(&clock_), ranks_(RecordOf(3), "/state") {
    for (LocalRank& rank : ranks_.all()) {
      rank.launch = 50 + rank.rank;
      rank.link = 100 + rank.rank;
    }
  }
  LocalRank& Rank(int rank) { return *ranks_.Find(rank); }

  base::ManualClock clock_;
  ManualLoop loop_;
  FakeRanks links_;
  FakeLauncher launcher_;
  RankSet ranks_;
};

}  // namespace mt::node
