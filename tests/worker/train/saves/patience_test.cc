// How long ranks wait for each other: while they load and save as long as the job allows for that,
// otherwise as long as it allows for one call.
#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

using std::chrono::milliseconds;

class PatienceTest : public TrainTest {
 protected:
  PatienceTest() { layout_ = {"parallel.data=2"}; }

  // What a call of the world and of background saves may take while rank 1 writes its shard.
  struct Limits {
    milliseconds world{0}, background{0};
  };
  Limits LimitsInSave(const std::string& async_save) {
    Limits seen;
    adjust_ = [&seen](int rank, TrainArgs* args) {
      if (rank != 1) return;
      args->checkpoint_failpoint = [&seen, groups = args->groups](std::string_view point) {
        if (point == "shard") {
          seen.world = groups->world()->op_timeout();
          if (groups->checkpoint() != nullptr) seen.background = groups->checkpoint()->op_timeout();
        }
        return OkStatus();
      };
    };
    const auto outcomes =
        Run({"checkpoint.async_save=" + async_save, "resilience.timeouts.checkpoint=2h"},
            {{3, {CommandKind::kCheckpointNow, "now"}}});
    for (const RankOutcome& rank : outcomes) EXPECT_TRUE(rank.result.completed);
    EXPECT_EQ(StepsOnDisk(), std::vector<int64_t>{4});
    return seen;
  }
};

// No call of a step is given any time here, and each has some member that must wait.
TEST_F(PatienceTest, SetUpDoesNotCountTheLimitOfACall) {
  op_timeout_ = std::chrono::seconds(0);
  const auto outcomes = Run({});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.created) << rank.result.status;
    EXPECT_FALSE(rank.result.completed);
  }
  EXPECT_TRUE(std::ranges::any_of(outcomes, [](const RankOutcome& rank) {
    return absl::IsDeadlineExceeded(rank.result.status);
  }));
}

TEST_F(PatienceTest, ASaveHasItsOwnLimit) {
  const Limits in_save = LimitsInSave("false");
  EXPECT_EQ(in_save.world, std::chrono::hours(2));
}

TEST_F(PatienceTest, ASaveInTheBackgroundLeavesTrainingItsLimit) {
  const Limits in_save = LimitsInSave("true");
  EXPECT_EQ(in_save.world, op_timeout_);
  EXPECT_EQ(in_save.background, std::chrono::hours(2));
}

}  // namespace
}  // namespace mt::train
