// The agent's core and its ranks: assignments, commands, which rank is at fault, and teardown.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/worker/node/agent/agent_rig.h"
#include "worker/node/ranks/job_names.h"

namespace mt::node {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::CoordinatorMessage;
using megatrain::v1::RankMessage;
using megatrain::v1::RankReport;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;

TEST_F(AgentTest, StartsRanksOnceHoweverOftenAssigned) {
  Assign(2);
  Assign(2);
  EXPECT_EQ(launcher_.started.size(), 2u);
  const auto replies = coordinator_.Heard(WorkerMessage::kAssignmentReply);
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_TRUE(replies[0].assignment_reply().accepted());
  EXPECT_TRUE(replies[1].assignment_reply().accepted());
  // A repetition does not start it again after its end either.
  EndRank(0, {.code = 0});
  EndRank(1, {.code = 0});
  ASSERT_TRUE(Gone());
  Assign(2);
  EXPECT_EQ(launcher_.started.size(), 2u);
}

// A coordinator with an old store may give an epoch again that was here and is over.
TEST_F(AgentTest, AnEpochThatIsOverIsNotAcceptedAgain) {
  StartJob(1);
  EndRank(0, {.code = 0});
  AckAll();
  Assign(1);
  const auto reply = coordinator_.Heard(WorkerMessage::kAssignmentReply).back().assignment_reply();
  EXPECT_FALSE(reply.accepted());
  EXPECT_EQ(reply.reason(), "epoch 1 of job job-uid-1 is over: its ranks have ended");
  EXPECT_EQ(launcher_.started.size(), 1u);
}

TEST_F(AgentTest, TellsARankWhatToRun) {
  StartJob(2);
  const RankLaunch launch = launcher_.started[launcher_.LaunchOf(1)];
  EXPECT_EQ(launch.slot, 1);
  EXPECT_EQ(launch.threads, 2);
  ASSERT_EQ(ranks_.heard[101].size(), 1u);
  const auto& assignment = ranks_.heard[101][0].assignment();
  EXPECT_EQ(assignment.output_file(), "") << "it is for jobs that read";
  EXPECT_EQ(assignment.world_size(), 2);
  EXPECT_EQ(assignment.threads(), 2);
  EXPECT_EQ(assignment.spec().name(), "demo");
  EXPECT_EQ(assignment.checkpoint_root(), "/ckpt");
  EXPECT_EQ(assignment.address(), "10.0.0.7");
  const auto reports = coordinator_.Heard(WorkerMessage::kRankReport);
  ASSERT_EQ(reports.size(), 4u);  // two SPAWNED, two CONNECTED
  EXPECT_EQ(reports[3].rank_report().status().state(), RankState::CONNECTED);
  EXPECT_EQ(reports[3].rank_report().status().pid(), 4001);
}

TEST_F(AgentTest, RefusesWhatItCannotRun) {
  Assign(2);
  const auto refuse = [this](const CoordinatorMessage& message) {
    coordinator_.Say(message);
    const auto reply =
        coordinator_.Heard(WorkerMessage::kAssignmentReply).back().assignment_reply();
    EXPECT_FALSE(reply.accepted());
    return reply.reason();
  };
  auto other = AssignMessage(1);
  other.mutable_assign()->set_job_uid("job-uid-2");
  EXPECT_EQ(refuse(other), "slot 0 is used by job job-uid-1 epoch 1");
  other = AssignMessage(1, 1, 4);
  other.mutable_assign()->set_job_uid("job-uid-2");
  EXPECT_EQ(refuse(other), "slot 4 does not exist or was given twice");
  other.mutable_assign()->mutable_spec()->set_name("../up");
  EXPECT_EQ(refuse(other), "bad job name \"../up\"");
  EXPECT_EQ(launcher_.started.size(), 2u);
}

TEST_F(AgentTest, ANewEpochClosesTheOldOne) {
  StartJob(1);
  coordinator_.Say(AssignMessage(1, 2, 1));
  EXPECT_EQ(launcher_.terminated, std::vector<LaunchId>{launcher_.LaunchOf(0) - 1});
  EXPECT_EQ(launcher_.started.size(), 2u);
  coordinator_.Say(AssignMessage(1, 1));
  EXPECT_FALSE(
      coordinator_.Heard(WorkerMessage::kAssignmentReply).back().assignment_reply().accepted());
}

TEST_F(AgentTest, ADeadRankStopsTheOthersAndIsNamed) {
  StartJob(3);
  std::filesystem::create_directories(
      std::filesystem::path(RankLogFile(dir_, "demo", kRigJob, 1)).parent_path());
  std::ofstream(RankLogFile(dir_, "demo", kRigJob, 1)) << "first\nlast words\n";
  EndRank(1, {.signal = SIGKILL});
  auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].status().rank(), 1);
  EXPECT_EQ(reports[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(reports[0].status().exit_signal(), SIGKILL);
  EXPECT_EQ(reports[0].cause(), megatrain::v1::INTERNAL);
  ASSERT_EQ(reports[0].last_log_lines_size(), 2);
  EXPECT_EQ(reports[0].last_log_lines(1), "last words");
  EXPECT_EQ(NumTold(0, AgentMessage::kExit), 1);
  EXPECT_EQ(NumTold(2, AgentMessage::kExit), 1);
  EXPECT_EQ(NumTold(1, AgentMessage::kExit), 0);
  // One leaves by itself, the other has to be killed, after P3's 5 s and not before.
  EndRank(0, {.code = 75});
  loop_.Advance(milliseconds(4900));
  EXPECT_TRUE(launcher_.killed.empty());
  loop_.Advance(milliseconds(200));
  EXPECT_EQ(launcher_.killed, std::vector<LaunchId>{launcher_.LaunchOf(2)});
  EXPECT_FALSE(Gone());
  EndRank(2, {.signal = SIGKILL});
  reports = ExitReports();
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[1].status().state(), RankState::DONE);
  EXPECT_EQ(reports[2].status().state(), RankState::DONE);
  EXPECT_TRUE(Gone());
  EXPECT_TRUE(coordinator_.heard.back().has_allocation_gone());
  EXPECT_EQ(agent_->num_allocations(), 0);
}

TEST_F(AgentTest, ABrokenDeviceTakesItsSlotOutOfOrder) {
  StartJob(2);
  EndRank(1, {.code = 72});
  const auto changes = coordinator_.Heard(WorkerMessage::kSlotsChanged);
  ASSERT_EQ(changes.size(), 1U);
  const auto& slots = changes[0].slots_changed().slots();
  EXPECT_EQ(slots[0].out_of_order(), "");
  EXPECT_EQ(slots[1].out_of_order(), fmt::format("rank 1 of job {} ended with exit code 72 (broken "
                                                 "hardware); in order again once mt-worker is "
                                                 "started anew",
                                                 kRigJob));
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].cause(), megatrain::v1::HARDWARE);
  // The other rank's slot serves the next epoch, this one does not.
  EndRank(0, {.code = 75});
  ASSERT_TRUE(Gone());
  coordinator_.Say(AssignMessage(2, 2));
  const auto reply = coordinator_.Heard(WorkerMessage::kAssignmentReply).back().assignment_reply();
  EXPECT_FALSE(reply.accepted());
  EXPECT_TRUE(reply.reason().starts_with("slot 1 is out of order: rank 1 of job"))
      << reply.reason();
}

TEST_F(AgentTest, ARankThatLostItsPeerIsNotTheCulprit) {
  StartJob(2);
  // The survivor reports the lost peer before the agent learns that the other process has ended.
  SayFault(0, 75, "rank 1 is gone");
  EndRank(0, {.code = 75});
  EXPECT_TRUE(ExitReports().empty());
  EndRank(1, {.signal = SIGSEGV});
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].status().rank(), 1);
  EXPECT_EQ(reports[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(reports[1].status().rank(), 0);
  EXPECT_EQ(reports[1].status().state(), RankState::DONE);
  EXPECT_TRUE(Gone());
}

TEST_F(AgentTest, WhereNobodyHereIsAtFaultTheCauseLiesElsewhere) {
  StartJob(2);
  EndRank(0, {.code = 75});
  EndRank(1, {.code = 75});
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(reports[0].cause(), megatrain::v1::NETWORK);
}

TEST_F(AgentTest, ARanksOwnMessageGoesWithItsFault) {
  StartJob(1);
  SayFault(0, 74, "loss is nan at step 12");
  EndRank(0, {.code = 74});
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].cause(), megatrain::v1::NUMERIC);
  EXPECT_EQ(reports[0].status().message(), "loss is nan at step 12; exit code 74 (not finite)");
  EXPECT_EQ(reports[0].status().exit_code(), 74);
}

TEST_F(AgentTest, TheEpochOfTheFenceGoesWithItsFault) {
  StartJob(1);
  RankMessage message;
  message.mutable_fault()->set_exit_code(64);
  message.mutable_fault()->set_message("epoch 1 is not above");
  message.mutable_fault()->set_fence_epoch(7);
  ranks_.Say(100, message);
  EndRank(0, {.code = 64});
  ASSERT_EQ(ExitReports().size(), 1u);
  EXPECT_EQ(ExitReports()[0].fence_epoch(), 7);
}

TEST_F(AgentTest, AsksForRankZeroWhetherItsEpochIsOpen) {
  StartJob(2);
  RankMessage query;
  query.mutable_epoch_query()->set_query_id(5);
  ranks_.Say(100, query);
  const WorkerMessage asked = coordinator_.heard.back();
  ASSERT_TRUE(asked.has_epoch_query());
  EXPECT_EQ(asked.seq(), 0);
  EXPECT_EQ(asked.epoch_query().job_uid(), kRigJob);
  EXPECT_EQ(asked.epoch_query().epoch(), 1);
  EXPECT_EQ(asked.epoch_query().query_id(), 5);
  CoordinatorMessage answer;
  answer.mutable_epoch_answer()->set_job_uid(kRigJob);
  answer.mutable_epoch_answer()->set_epoch(1);
  answer.mutable_epoch_answer()->set_query_id(5);
  answer.mutable_epoch_answer()->set_open(true);
  coordinator_.Say(answer);
  EXPECT_EQ(NumTold(1, AgentMessage::kEpochAnswer), 0);
  ASSERT_EQ(NumTold(0, AgentMessage::kEpochAnswer), 1);
  EXPECT_EQ(ranks_.heard[100].back().epoch_answer().query_id(), 5);
  EXPECT_TRUE(ranks_.heard[100].back().epoch_answer().open());
  answer.mutable_epoch_answer()->set_epoch(2);  // nobody is there
  coordinator_.Say(answer);
  EXPECT_EQ(NumTold(0, AgentMessage::kEpochAnswer), 1);
}

TEST_F(AgentTest, ReleaseIsACommandForRankZero) {
  StartJob(2);
  coordinator_.Say(CommandMessage(Command::RELEASE, "c1"));
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  ASSERT_EQ(NumTold(0, AgentMessage::kWord), 1);
  EXPECT_EQ(ranks_.heard[100].back().word().verb(), Command::RELEASE);
}

TEST_F(AgentTest, ARankThatCannotBeStartedIsAFault) {
  launcher_.start_status = base::NotFound("start /x/mt-shim: No such file or directory");
  Assign(2);
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(reports[0].status().message(), "start /x/mt-shim: No such file or directory");
  EXPECT_TRUE(Gone());
}

TEST_F(AgentTest, CommandsReachRankZeroAlsoWhenItComesLate) {
  Assign(2);
  coordinator_.Say(CommandMessage(Command::STOP_WITH_SAVE, "c1"));
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  Attach(0);
  Attach(1);
  EXPECT_EQ(NumTold(0, AgentMessage::kWord), 1);
  EXPECT_EQ(NumTold(1, AgentMessage::kWord), 0);
  coordinator_.Say(CommandMessage(Command::STOP_WITH_SAVE, "c1"));  // a repetition
  EXPECT_EQ(NumTold(0, AgentMessage::kWord), 1);
  ranks_.Hang(100);  // the command may have been lost with the stream
  Attach(0, 200);
  EXPECT_TRUE(ranks_.heard[200].back().has_word());
  RankMessage done;
  done.mutable_command_done()->set_command_id("c1");
  ranks_.Say(200, done);
  Attach(0, 300);
  EXPECT_TRUE(ranks_.heard[300].back().has_assignment());
}

TEST_F(AgentTest, KillEndsTheRanksWithoutAFault) {
  StartJob(2);
  coordinator_.Say(CommandMessage(Command::KILL, "c1"));
  EXPECT_EQ(launcher_.terminated.size(), 2u);
  EndRank(0, {.signal = SIGTERM});
  EndRank(1, {.code = 75});
  for (const RankReport& report : ExitReports()) {
    EXPECT_EQ(report.status().state(), RankState::DONE);
    EXPECT_EQ(report.status().message(), "killed on request");
  }
  EXPECT_TRUE(Gone());
  coordinator_.Say(CommandMessage(Command::KILL, "c2"));
  EXPECT_FALSE(coordinator_.heard.back().command_ack().accepted());
}

TEST_F(AgentTest, ShutdownEndsRanksThatAreToStopFirstAndSaysSo) {
  auto assign = AssignMessage(1);
  assign.mutable_assign()->mutable_spec()->mutable_resilience()->set_on_agent_exit(
      megatrain::v1::Resilience::ON_AGENT_EXIT_STOP);
  coordinator_.Say(assign);
  Attach(0);
  bool done = false;
  agent_->Shutdown([&done] { done = true; });
  EXPECT_EQ(launcher_.terminated.size(), 1u);
  EXPECT_FALSE(done);
  EndRank(0, {.signal = SIGTERM});
  ASSERT_EQ(ExitReports().size(), 1u);
  EXPECT_EQ(ExitReports()[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(ExitReports()[0].status().message(), "the worker agent was stopped");
  EXPECT_FALSE(done);  // the reports are not acknowledged
  CoordinatorMessage ack;
  ack.mutable_report_ack()->set_seq(1000);
  coordinator_.Say(ack);
  loop_.Advance(milliseconds(50));
  EXPECT_TRUE(done);
  EXPECT_TRUE(coordinator_.close_asked);
}

}  // namespace
}  // namespace mt::node
