// What the agent says that it holds: with every heartbeat as one number, and whole when it is
// asked.
#include <gtest/gtest.h>

#include "common/control/held_digest.h"
#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::Heartbeat;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;
using std::chrono::seconds;

class HeldTest : public AgentTest {
 protected:
  // The next heartbeat.
  Heartbeat Beat() {
    CoordinatorMessage ack;
    ack.mutable_heartbeat_ack()->set_beat(
        static_cast<int64_t>(coordinator_.Heard(WorkerMessage::kHeartbeat).size()));
    coordinator_.Say(ack);
    loop_.Advance(seconds(2));
    return coordinator_.Heard(WorkerMessage::kHeartbeat).back().heartbeat();
  }
  static uint64_t Of(int rank, bool ended, int64_t epoch = 1) {
    return control::HeldRankHash(kRigJob, epoch, rank, ended);
  }
  int64_t NewestSeq() const {
    int64_t newest = 0;
    for (const WorkerMessage& message : coordinator_.heard)
      newest = std::max<int64_t>(newest, message.seq());
    return newest;
  }
  megatrain::v1::HeldReport AskForHeld(bool with_assign) {
    CoordinatorMessage request;
    request.mutable_held_request()->set_with_assign(with_assign);
    coordinator_.Say(request);
    loop_.RunPosted();
    return coordinator_.Heard(WorkerMessage::kHeldReport).back().held_report();
  }
};

TEST_F(HeldTest, HeartbeatsCarryTheSumOverRanksThatAreNotGone) {
  EXPECT_EQ(Beat().held_digest(), 0u);
  StartJob(2);
  EXPECT_EQ(Beat().held_digest(), Of(0, false) + Of(1, false));
  EXPECT_EQ(Beat().newest_seq(), NewestSeq());
  // Rank 1 only lost its peer: its end is told once a culprit is known, and counts from then on.
  EndRank(1, {.code = 75});
  EXPECT_TRUE(ExitReports().empty());
  EXPECT_EQ(Beat().held_digest(), Of(0, false) + Of(1, false));
  EndRank(0, {.code = 74});
  EXPECT_TRUE(Gone());
  EXPECT_EQ(Beat().held_digest(), 0u) << "gone, though nobody has acknowledged it";
  AckAll();
  EXPECT_EQ(Beat().held_digest(), 0u);
}

TEST_F(HeldTest, ARankThatEndedIsHeldUntilTheOthersAreGone) {
  StartJob(2);
  EndRank(0, {.code = 0});
  ASSERT_EQ(ExitReports().size(), 1u);
  EXPECT_EQ(Beat().held_digest(), Of(0, true) + Of(1, false));
}

TEST_F(HeldTest, TheNewestCommandOfTheConnectionIsNamed) {
  StartJob(1);
  EXPECT_EQ(Beat().newest_command(), "");
  coordinator_.Say(CommandMessage(megatrain::v1::Command::HOLD, "word/x/1/1"));
  EXPECT_EQ(Beat().newest_command(), "word/x/1/1");
  coordinator_.Break("cut");
  loop_.Advance(seconds(6));
  coordinator_.Register();
  EXPECT_EQ(Beat().newest_command(), "");
}

TEST_F(HeldTest, AReportOfWhatIsHeldIsNumberedAndHasTheAssignmentIfAsked) {
  StartJob(2);
  megatrain::v1::HeldReport report = AskForHeld(/*with_assign=*/false);
  ASSERT_EQ(report.allocations_size(), 1);
  EXPECT_EQ(report.allocations(0).job_uid(), kRigJob);
  EXPECT_EQ(report.allocations(0).job_name(), "demo");
  EXPECT_EQ(report.allocations(0).world_size(), 2);
  EXPECT_EQ(report.allocations(0).ranks_size(), 2);
  EXPECT_FALSE(report.allocations(0).has_assign());
  report = AskForHeld(/*with_assign=*/true);
  EXPECT_EQ(report.allocations(0).assign().spec().name(), "demo");
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kHeldReport).back().seq(), NewestSeq());
  EndRank(0, {.code = 0});
  EndRank(1, {.code = 0});
  EXPECT_EQ(AskForHeld(true).allocations_size(), 0);
}

TEST_F(HeldTest, AnotherAgentHoldsTheSame) {
  StartJob(2);
  const uint64_t before = Beat().held_digest();
  RestartAgent();
  EXPECT_EQ(Beat().held_digest(), before);
  const auto& again = coordinator_.heard.front().register_();
  EXPECT_EQ(again.allocations(0).world_size(), 2);
  EXPECT_EQ(again.allocations(0).job_name(), "demo");
}

}  // namespace
}  // namespace mt::node
