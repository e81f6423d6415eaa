// Ranks without progress: what the agent reports to the coordinator, and when it takes it back.
#include <csignal>

#include <gmock/gmock.h>

#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::RankMessage;
using megatrain::v1::RankState;
using megatrain::v1::RankStatus;
using megatrain::v1::WorkerMessage;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr char kMark[] = "step 41, microbatch 2, chunk 0: dp_comm; 0 marks enqueued behind it";

class StallTest : public AgentTest {
 protected:
  // Starts two ranks, which train and have done a few steps.
  void StartTraining() {
    StartJob(2);
    for (int rank = 0; rank < 2; ++rank) SayState(rank, RankState::TRAINING);
    for (int rank = 0; rank < 2; ++rank) {
      RankMessage message = Beat(10, "");
      for (int i = 0; i < 5; ++i)
        message.mutable_beat()->mutable_telemetry()->add_recent_step_seconds(0.1);
      ranks_.Say(100 + rank, message);
    }
  }
  void SayState(int rank, RankState state) {
    RankMessage message;
    message.mutable_state()->set_state(state);
    ranks_.Say(100 + rank, message);
  }
  static RankMessage Beat(int64_t progress, const std::string& mark) {
    RankMessage message;
    message.mutable_beat()->set_progress(progress);
    message.mutable_beat()->set_step(40);
    if (!mark.empty()) message.mutable_beat()->mutable_mark()->set_text(mark);
    return message;
  }
  // Passes time in which the ranks in `beating` send a beat with kMark every second.
  void PassBeating(seconds time, const std::vector<int>& beating) {
    for (seconds passed{0}; passed < time; passed += seconds(1)) {
      loop_.Advance(seconds(1));
      for (const int rank : beating) ranks_.Say(100 + rank, Beat(10, kMark));
    }
  }
  std::vector<RankStatus> StallReports() {
    std::vector<RankStatus> reports;
    for (const auto& message : coordinator_.Heard(WorkerMessage::kRankReport)) {
      if (message.rank_report().status().has_stall())
        reports.push_back(message.rank_report().status());
    }
    return reports;
  }
  RankStatus LastReport() {
    return coordinator_.Heard(WorkerMessage::kRankReport).back().rank_report().status();
  }
};

TEST_F(StallTest, EachIsReportedOnceWithWhereItsDeviceStands) {
  StartTraining();
  const int64_t begin_us = base::ToUnixMicros(clock_.WallNow());
  PassBeating(seconds(58), {0, 1});
  EXPECT_TRUE(StallReports().empty());
  PassBeating(seconds(120), {0, 1});
  const auto reports = StallReports();
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[1].rank(), 1);
  EXPECT_EQ(reports[1].state(), RankState::TRAINING);
  EXPECT_EQ(reports[1].step(), 40);
  EXPECT_EQ(reports[1].stall().mark(), kMark);
  EXPECT_EQ(reports[1].stall().limit_ms(), 60'000);
  EXPECT_EQ(reports[1].stall().since_us(), begin_us + 1'000'000);
  EXPECT_EQ(reports[1].stall().last_beat_us(), 0);
  EXPECT_TRUE(launcher_.killed.empty());
  EXPECT_TRUE(launcher_.terminated.empty());
  // One goes on: that is reported at once, for this rank alone.
  ranks_.Say(101, Beat(11, kMark));
  EXPECT_EQ(LastReport().rank(), 1);
  EXPECT_FALSE(LastReport().has_stall());
  EXPECT_EQ(StallReports().size(), 2U);
}

TEST_F(StallTest, AFrozenRankIsToldFromOneThatWaitsForIt) {
  StartTraining();
  PassBeating(seconds(70), {0});
  const auto reports = StallReports();
  ASSERT_EQ(reports.size(), 2U);
  for (const RankStatus& report : reports) {
    EXPECT_EQ(report.stall().last_beat_us() != 0, report.rank() == 1) << report.rank();
  }
}

TEST_F(StallTest, AHeldJobStandsStillInOrder) {
  StartTraining();
  for (int rank = 0; rank < 2; ++rank) SayState(rank, RankState::HELD);
  PassBeating(seconds(3'600), {0, 1});
  EXPECT_TRUE(StallReports().empty());
  SayState(0, RankState::TRAINING);
  PassBeating(seconds(70), {0, 1});
  ASSERT_EQ(StallReports().size(), 1U);
  EXPECT_EQ(StallReports()[0].rank(), 0);
}

TEST_F(StallTest, TheJobsOwnLimitsCount) {
  auto assign = AssignMessage(1);
  auto& timeouts =
      *assign.mutable_assign()->mutable_spec()->mutable_resilience()->mutable_timeouts();
  timeouts.set_comm_init(20'000);
  timeouts.set_load(40'000);
  coordinator_.Say(assign);
  loop_.RunPosted();
  Attach(0);
  SayState(0, RankState::COMM_INIT);
  PassBeating(seconds(30), {0});
  ASSERT_EQ(StallReports().size(), 1U);
  EXPECT_EQ(StallReports()[0].stall().limit_ms(), 20'000);
  SayState(0, RankState::LOADING);
  EXPECT_FALSE(LastReport().has_stall());
  PassBeating(seconds(35), {0});
  EXPECT_EQ(StallReports().size(), 1U);
  PassBeating(seconds(10), {0});
  EXPECT_EQ(StallReports().size(), 2U);
}

TEST_F(StallTest, ACoordinatorThatComesLaterHearsOfIt) {
  StartTraining();
  PassBeating(seconds(70), {0, 1});
  coordinator_.Break("restart");
  loop_.Advance(seconds(1));
  const auto hello = coordinator_.Heard(WorkerMessage::kRegister).back().register_();
  ASSERT_EQ(hello.allocations_size(), 1);
  EXPECT_EQ(hello.allocations(0).ranks(0).stall().mark(), kMark);
}

TEST_F(StallTest, TheMessageOfItsEndTellsWhereItStood) {
  StartTraining();
  PassBeating(seconds(70), {0, 1});
  EndRank(1, {.signal = SIGKILL});
  ASSERT_EQ(ExitReports().size(), 1U);
  EXPECT_THAT(ExitReports()[0].status().message(),
              HasSubstr("killed by signal 9 (Killed); it had shown no progress for 6"));
  EXPECT_THAT(ExitReports()[0].status().message(),
              HasSubstr(std::string("its device at ") + kMark));
  EXPECT_FALSE(ExitReports()[0].status().has_stall());
  EXPECT_EQ(StallReports().size(), 2U) << "nobody is watched any more";
}

TEST_F(StallTest, ASignalOutOfTheBlueTellsWhereTheDeviceWas) {
  StartTraining();
  PassBeating(seconds(1), {0, 1});
  EndRank(1, {.signal = SIGSEGV});
  ASSERT_EQ(ExitReports().size(), 1U);
  EXPECT_THAT(
      ExitReports()[0].status().message(),
      HasSubstr(std::string("killed by signal 11 (Segmentation fault); device last at ") + kMark));
}

TEST_F(StallTest, RanksThatAreAbortedAreNotReported) {
  StartTraining();
  PassBeating(seconds(62), {0, 1});  // the limit has passed, the next look is due at 65 s
  SayFault(1, 74, "loss is nan");
  PassBeating(seconds(4), {0, 1});  // P3 has not
  EXPECT_TRUE(launcher_.killed.empty());
  EXPECT_TRUE(StallReports().empty());
}

TEST_F(StallTest, RanksThatAreEndedAreNotReported) {
  StartTraining();
  PassBeating(seconds(58), {0, 1});
  coordinator_.Say(CommandMessage(megatrain::v1::Command::KILL, "k"));
  PassBeating(seconds(60), {0, 1});
  EXPECT_EQ(launcher_.terminated.size(), 2U);
  EXPECT_TRUE(StallReports().empty());
}

TEST_F(StallTest, TheNextAgentWatchesOn) {
  StartTraining();
  PassBeating(seconds(70), {0, 1});
  RestartAgent();
  loop_.Advance(seconds(700));
  EXPECT_TRUE(StallReports().empty()) << "not before it calls";
  Attach(0);
  SayState(0, RankState::TRAINING);
  PassBeating(seconds(590), {0});
  EXPECT_TRUE(StallReports().empty()) << "no step's time is known yet";
  PassBeating(seconds(20), {0});
  ASSERT_EQ(StallReports().size(), 1U);
  EXPECT_EQ(StallReports()[0].stall().limit_ms(), 600'000);
}

}  // namespace
}  // namespace mt::node
