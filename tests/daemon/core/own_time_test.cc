// The coordinator's own freezes count for no lease and no limit.
#include "daemon/membership/own_time.h"

#include "common/control/numbers.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(OwnTime, ATurnCountsAsTwoSecondsAtMost) {
  base::ManualClock clock;
  OwnTime time(&clock);
  const base::MonotonicTime start = time.Now();
  time.Turn();
  clock.Advance(milliseconds(1'900));
  EXPECT_EQ(time.Now() - start, milliseconds(1'900));
  EXPECT_EQ(time.Turn().count(), 0);
  clock.Advance(seconds(60));
  EXPECT_EQ(time.Now() - start, milliseconds(3'900)) << "before the next turn, too";
  EXPECT_EQ(time.Turn(), seconds(58));
  EXPECT_EQ(time.Now() - start, milliseconds(3'900));
  clock.Advance(milliseconds(100));
  time.Turn();
  EXPECT_EQ(time.Now() - start, milliseconds(4'000)) << "and it goes on from there";
}

TEST(OwnTime, StandsStillOnHold) {
  base::ManualClock clock;
  OwnTime time(&clock);
  const base::MonotonicTime start = time.Now();
  time.Turn();
  time.Hold(true);
  for (int i = 0; i < 100; ++i) {
    clock.Advance(seconds(1));
    time.Turn();
  }
  clock.Advance(seconds(60));
  time.Turn();
  EXPECT_EQ(time.Now(), start);
  time.Hold(true);
  time.Hold(false);
  EXPECT_EQ(time.Now(), start);
  clock.Advance(seconds(1));
  EXPECT_EQ(time.Now() - start, seconds(1));
  time.Hold(false);
  EXPECT_EQ(time.Now() - start, seconds(1));
}

class FreezeTest : public CoreTest {
 protected:
  // A turn as the loop makes them; `during` is how long it takes.
  void Turn(milliseconds during = milliseconds(100)) {
    core_->Turn();
    clock_.Advance(during);
    Settle();
  }
  void Run(seconds time) {
    for (int i = 0; i < 10 * time.count(); ++i) Turn();
  }
  int Nodes(v1::NodeState state) {
    v1::ListNodesResponse nodes;
    core_->api().nodes().List(&nodes);
    return static_cast<int>(std::ranges::count(nodes.nodes(), state,
                                               [](const v1::Node& node) { return node.state(); }));
  }
};

TEST_F(FreezeTest, SixtySecondsUnderTwentyNodesLoseNone) {
  std::vector<Worker> workers;
  std::vector<v1::Job> jobs;
  for (int i = 0; i < 20; ++i) {
    workers.push_back(NewWorker(fmt::format("n{}", i), 1));
    jobs.push_back(StartRunning(workers.back(), fmt::format("job-{}", i), 1));
  }
  // One that stops (P1), one that waits for its agent (P6), one with a deadline.
  ASSERT_TRUE(Cancel(jobs[0].uid(), false).ok());
  Worker silent = NewWorker("silent", 1);
  const v1::Job asked = Submit(TinyJob("asked", 1));
  const v1::Job late = Submit(TinyJob("late", 1, "resilience: {deadline: 50s}\n"));
  Turn();
  ASSERT_EQ(asked.state(), v1::ADMITTED);
  // The process is stopped in the middle of a turn, then between two.
  for (int i = 0; i < 2; ++i) {
    Turn(seconds(60));
    EXPECT_EQ(Nodes(v1::NODE_READY), 21);
    clock_.Advance(seconds(60));
    Turn();
    EXPECT_EQ(Nodes(v1::NODE_READY), 21);
  }
  EXPECT_TRUE(Events("NodeLost").empty());
  EXPECT_EQ(CountCommands(workers[0], v1::Command::KILL), 0) << "it had no 60 s to stop";
  EXPECT_EQ(Get(asked.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Get(asked.uid()).epoch(), asked.epoch()) << "its agent had no 30 s to answer";
  EXPECT_EQ(Get(late.uid()).state(), v1::QUEUED);
  for (int i = 1; i < 20; ++i) EXPECT_EQ(Get(jobs[i].uid()).state(), v1::RUNNING);
  // Silence that it has heard itself counts as ever.
  Run(seconds(31));
  EXPECT_EQ(Nodes(v1::NODE_LOST), 21);
}

TEST_F(FreezeTest, SilenceIsStillFoundWhereEveryTurnIsSlow) {
  Worker worker = NewWorker("n1", 1);
  for (int i = 0; i < 20; ++i) Turn(seconds(5));
  EXPECT_EQ(Nodes(v1::NODE_LOST), 1) << "each counts as two seconds";
}

}  // namespace
}  // namespace mt::daemon
