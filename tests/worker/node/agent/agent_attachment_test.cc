// How an agent takes over the ranks of its predecessor, and what it leaves to its successor.
#include <csignal>

#include <gtest/gtest.h>

#include "tests/worker/node/agent/attachment_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::RankMessage;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;

TEST_F(AttachmentTest, TheNextAgentTakesOver) {
  StartJob(2);
  RestartAgent();
  const auto& hello = coordinator_.heard.front().register_();
  EXPECT_EQ(hello.worker_uid(), "worker-1+");
  ASSERT_EQ(hello.allocations_size(), 1);
  ASSERT_EQ(hello.allocations(0).ranks_size(), 2);
  EXPECT_EQ(hello.allocations(0).ranks(1).state(), RankState::UNKNOWN);
  EXPECT_GT(hello.allocations(0).ranks(1).pid(), 5000);
  EXPECT_EQ(hello.slots(1).job_uid(), kRigJob);
  EXPECT_TRUE(launcher_.started.empty());
  EXPECT_EQ(launcher_.adopted.size(), 2u);
  AttachAgain(1, RankState::TRAINING, 77);
  const auto report = coordinator_.heard.back().rank_report();
  EXPECT_EQ(report.status().state(), RankState::TRAINING);
  EXPECT_EQ(report.status().step(), 77);
  EXPECT_EQ(report.status().pid(), 4001);
  // The coordinator may repeat the assignment, which starts nothing.
  Assign(2);
  EXPECT_TRUE(coordinator_.heard.back().assignment_reply().accepted());
  EXPECT_TRUE(launcher_.started.empty());
}

TEST_F(AttachmentTest, RanksSendAgainWhatOnlyTheDeadAgentHad) {
  StartJob(1);
  SayStep(1, 1);
  loop_.Advance(milliseconds(100));
  Ack(coordinator_.heard.back().seq());
  SayStep(2, 2);
  loop_.Advance(milliseconds(100));  // not acknowledged
  RestartAgent();
  AttachAgain(0, RankState::TRAINING, 3);
  for (int64_t step = 2; step <= 3; ++step) ranks_.Say(100, Step(step, step));
  loop_.Advance(milliseconds(100));
  EXPECT_EQ(HeardSteps(), (std::vector<int64_t>{2, 3}));
  AckAll();
  EXPECT_EQ(Told(), 3);
}

TEST_F(AttachmentTest, TheEndWhileNobodyWatchedIsReportedWithWhatWasUnsent) {
  StartJob(2);
  ReplaceAgent();
  RankMessage fault;
  fault.mutable_fault()->set_exit_code(74);
  fault.mutable_fault()->set_cause(megatrain::v1::NUMERIC);
  fault.mutable_fault()->set_message("loss is nan at step 12");
  fault.mutable_fault()->set_reason("A_REASON");
  const std::string unsent = Unsent({Step(11, 5), Saved(11, 6), Step(12, 7), fault});
  EndRank(1, {.code = 75});
  EndRank(0, {.code = 74, .unsent = unsent});
  StartAgain();
  ASSERT_EQ(coordinator_.heard.front().register_().allocations_size(), 1);
  EXPECT_TRUE(coordinator_.heard.front().register_().allocations(0).ranks(0).exited());
  EXPECT_EQ(HeardSteps(), (std::vector<int64_t>{11, 12}));
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kJobReport).at(0).job_report().rank_seq(), 6);
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].status().rank(), 0);
  EXPECT_EQ(reports[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(reports[0].cause(), megatrain::v1::NUMERIC);
  EXPECT_EQ(reports[0].reason(), "A_REASON");
  EXPECT_EQ(reports[0].status().exit_code(), 74);
  EXPECT_EQ(reports[0].status().step(), 12);
  EXPECT_EQ(reports[1].status().state(), RankState::DONE);
  // The unsent messages come first, then the rank's exit, then the end of the allocation.
  size_t last_step = 0;
  size_t end = 0;
  for (size_t i = 0; i < coordinator_.heard.size(); ++i) {
    const auto& message = coordinator_.heard[i];
    if (message.has_steps()) last_step = i;
    if (message.has_rank_report() && message.rank_report().status().exited() && end == 0) end = i;
  }
  EXPECT_LT(last_step, end);
  EXPECT_TRUE(Gone());
}

TEST_F(AttachmentTest, TheRecordStaysUntilTheCoordinatorKnowsTheEnd) {
  StartJob(1);
  EndRank(0, {.signal = SIGSEGV});
  EXPECT_TRUE(Gone());
  EXPECT_EQ(store_.records.size(), 1u);
  // Killed before the acknowledgement: the next agent reports everything again.
  ReplaceAgent();
  EndRank(0, {.signal = SIGSEGV});
  StartAgain();
  ASSERT_EQ(ExitReports().size(), 1u);
  EXPECT_EQ(ExitReports()[0].status().exit_signal(), SIGSEGV);
  EXPECT_TRUE(Gone());
  AckAll();
  EXPECT_TRUE(store_.records.empty());
  RestartAgent();
  EXPECT_EQ(coordinator_.heard.front().register_().allocations_size(), 0);
}

TEST_F(AttachmentTest, AnAgentThatIsKnownRegistersOnlyWhatRuns) {
  StartJob(1);
  EndRank(0, {.code = 0});
  coordinator_.Break("cut");
  loop_.Advance(std::chrono::seconds(6));
  EXPECT_EQ(coordinator_.heard.front().register_().allocations_size(), 0);
  coordinator_.Register();
  EXPECT_TRUE(Gone());  // among the reports that are sent again
}

TEST_F(AttachmentTest, PolicyStopEndsWhatTheDeadAgentLeft) {
  StartStopJob(2);
  EXPECT_TRUE(launcher_.started[launcher_.LaunchOf(0)].stop_with_agent);
  RestartAgent();
  EXPECT_EQ(launcher_.terminated.size(), 2u);
  EndRank(0, {.signal = SIGTERM, .stopped = true});
  EndRank(1, {.code = 75, .stopped = true});
  for (const auto& report : ExitReports()) {
    EXPECT_EQ(report.status().state(), RankState::FAULTED);
    EXPECT_EQ(report.cause(), megatrain::v1::INTERNAL);
    EXPECT_EQ(report.status().message(),
              "its worker agent ended, and the job says on_agent_exit: stop");
  }
  EXPECT_TRUE(Gone());
}

TEST_F(AttachmentTest, AKillThatTheDeadAgentHadBegunIsNoFault) {
  StartJob(1);
  coordinator_.Say(CommandMessage(Command::KILL, "c1"));
  RestartAgent();
  EXPECT_EQ(launcher_.terminated.size(), 1u);
  EndRank(0, {.signal = SIGTERM, .stopped = true});
  ASSERT_EQ(ExitReports().size(), 1u);
  EXPECT_EQ(ExitReports()[0].status().state(), RankState::DONE);
  EXPECT_EQ(ExitReports()[0].status().message(), "killed on request");
}

TEST_F(AttachmentTest, AnInterruptedStartIsAFailure) {
  StartJob(2);
  ReplaceAgent();
  launcher_.End(launcher_.LaunchOf(1), {.known = false, .error = "it was not started"});
  StartAgain();
  ASSERT_EQ(ExitReports().size(), 1u);
  EXPECT_EQ(ExitReports()[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(ExitReports()[0].status().message(), "it was not started");
  AttachAgain(0, RankState::CONNECTED, 0);  // told to leave as soon as it calls
  EXPECT_EQ(NumTold(0, AgentMessage::kExit), 1);
  EndRank(0, {.code = 75});
  EXPECT_EQ(ExitReports().back().status().state(), RankState::DONE);
  EXPECT_TRUE(Gone());
}

TEST_F(AttachmentTest, WhatTheDeadAgentKilledAfterAFaultIsNotTheCulprit) {
  StartJob(2);
  ReplaceAgent();
  EndRank(0, {.signal = SIGKILL, .stopped = true});
  EndRank(1, {.signal = SIGSEGV});
  StartAgain();
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].status().rank(), 1);
  EXPECT_EQ(reports[0].status().state(), RankState::FAULTED);
  EXPECT_EQ(reports[1].status().state(), RankState::DONE);
}

TEST_F(AttachmentTest, ADamagedRecordEndsTheRanksAndFailsTheJob) {
  StartJob(2);
  auto guess = store_.records.begin()->second;
  guess.mutable_assign()->clear_spec();
  for (auto& rank : *guess.mutable_ranks()) rank.clear_token();
  store_.records.clear();
  ReplaceAgent();
  agent_->Adopt(guess, "allocation.bin: damaged");
  StartAgain();
  EXPECT_EQ(launcher_.terminated.size(), 2u);
  RankMessage hello;  // the token is not known any more; an empty one is refused
  hello.mutable_hello()->set_job_uid(kRigJob);
  hello.mutable_hello()->set_epoch(1);
  ranks_.Say(100, hello);
  EXPECT_EQ(ranks_.refused[100], "wrong token for rank 0 of job job-uid-1");
  EndRank(0, {.signal = SIGTERM, .stopped = true});
  EndRank(1, {.signal = SIGTERM, .stopped = true});
  for (const auto& report : ExitReports()) {
    EXPECT_EQ(report.status().state(), RankState::FAULTED);
    EXPECT_EQ(report.status().message(), "allocation.bin: damaged");
  }
  EXPECT_EQ(ExitReports().size(), 2u);
  EXPECT_TRUE(Gone());
  AckAll();
  EXPECT_TRUE(store_.records.empty());
}

TEST_F(AttachmentTest, ADamagedRecordWithoutRanksIsStillReportedGone) {
  auto nothing = megatrain::v1::AllocationRecord();
  nothing.mutable_assign()->set_job_uid(kRigJob);
  nothing.mutable_assign()->set_epoch(1);
  ReplaceAgent();
  agent_->Adopt(nothing, "allocation.bin: damaged");
  StartAgain();
  EXPECT_TRUE(Gone());
}

TEST_F(AttachmentTest, NothingStartsThatTheNextAgentCouldNotFind) {
  store_.save_status = base::Error(absl::StatusCode::kResourceExhausted, "no space left");
  Assign(1);
  const auto reply = coordinator_.heard.back().assignment_reply();
  EXPECT_FALSE(reply.accepted());
  EXPECT_EQ(reply.reason(), "no space left");
  EXPECT_TRUE(launcher_.started.empty());
  store_.save_status = OkStatus();
  StartJob(1);
  EXPECT_EQ(launcher_.started.size(), 1u);
  store_.save_status = base::Error(absl::StatusCode::kResourceExhausted, "no space left");
  coordinator_.Say(
      CommandMessage(Command::STOP_WITH_SAVE, "c1"));  // works although the disk is full
  EXPECT_EQ(NumTold(0, AgentMessage::kWord), 1);
}

TEST_F(AttachmentTest, ShutdownLeavesRanksThatAreToGoOn) {
  StartJob(1);
  AckAll();
  bool done = false;
  agent_->Shutdown([&done] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_TRUE(launcher_.terminated.empty());
  EXPECT_FALSE(launcher_.started[launcher_.LaunchOf(0)].stop_with_agent);
  EXPECT_EQ(store_.records.size(), 1u);
}

}  // namespace
}  // namespace mt::node
