// What of a rank's news arrives, once, although agents and coordinators come and go; and what an
// agent makes of the ranks that the one before it has left.
#include <csignal>

#include <google/protobuf/util/delimited_message_util.h>
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_rig.h"
#include "worker/agent/unsent_messages.h"

namespace mt::agent {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::CoordinatorMessage;
using megatrain::v1::RankMessage;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;

class AttachmentTest : public AgentTest {
 protected:
  void Ack(int64_t seq) {
    CoordinatorMessage message;
    message.mutable_report_ack()->set_seq(seq);
    coordinator_.Say(message);
    loop_.RunPosted();
  }
  // What rank 0 was last told of its messages; 0: nothing.
  int64_t Told(LinkId link = 100) {
    int64_t seq = 0;
    for (const AgentMessage& message : ranks_.heard[link]) {
      if (message.has_ack()) seq = message.ack().seq();
    }
    return seq;
  }
  static RankMessage Saved(int64_t step, int64_t seq) {
    RankMessage message;
    message.mutable_job_report()->mutable_checkpoint_saved()->set_step(step);
    message.set_seq(seq);
    return message;
  }
  static RankMessage Step(int64_t step, int64_t seq) {
    RankMessage message;
    message.mutable_step()->set_step(step);
    message.set_seq(seq);
    return message;
  }
  static RankMessage Done(const std::string& id, int64_t seq) {
    RankMessage message;
    message.mutable_command_done()->set_command_id(id);
    message.mutable_command_done()->set_step(9);
    message.set_seq(seq);
    return message;
  }
  // The file that a rank leaves.
  static std::string Unsent(const std::vector<RankMessage>& messages) {
    std::ostringstream out;
    for (const RankMessage& message : messages) {
      EXPECT_TRUE(google::protobuf::util::SerializeDelimitedToOstream(message, &out));
    }
    return out.str();
  }
  std::vector<int64_t> HeardSteps() {
    std::vector<int64_t> steps;
    for (const WorkerMessage& message : coordinator_.Heard(WorkerMessage::kSteps)) {
      for (const auto& step : message.steps().steps()) steps.push_back(step.step());
    }
    return steps;
  }
  // The rank calls a new agent and says where it stands.
  void AttachAgain(int rank, RankState state, int64_t step) {
    RankMessage message;
    auto& hello = *message.mutable_hello();
    hello.set_job_uid(kRigJob);
    hello.set_epoch(1);
    hello.set_rank(rank);
    hello.set_token(Token(rank));
    hello.set_pid(4000 + rank);
    hello.set_state(state);
    hello.set_step(step);
    ranks_.Say(100 + rank, message);
  }
  void StartStopJob(int num_ranks) {
    auto message = AssignMessage(num_ranks);
    message.mutable_assign()->mutable_spec()->mutable_resilience()->set_on_agent_exit(
        megatrain::v1::Resilience::ON_AGENT_EXIT_STOP);
    coordinator_.Say(message);
    for (int rank = 0; rank < num_ranks; ++rank) Attach(rank);
  }
};

TEST_F(AttachmentTest, ARankIsToldOnlyWhatTheCoordinatorHas) {
  StartJob(1);
  SayStep(1, 1);
  SayStep(2, 2);
  ranks_.Say(100, Saved(2, 3));
  SayStep(3, 4);
  loop_.Advance(milliseconds(100));
  const auto steps = coordinator_.Heard(WorkerMessage::kSteps);
  const auto saved = coordinator_.Heard(WorkerMessage::kJobReport);
  ASSERT_EQ(steps.size(), 2u);
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].job_report().rank_seq(), 3);
  ASSERT_LT(steps[0].seq(), saved[0].seq());  // the rank's order is kept
  ASSERT_LT(saved[0].seq(), steps[1].seq());
  EXPECT_EQ(Told(), 0);
  Ack(steps[0].seq());
  EXPECT_EQ(Told(), 2);
  Ack(saved[0].seq());
  EXPECT_EQ(Told(), 3);
  Ack(steps[1].seq());
  EXPECT_EQ(Told(), 4);
}

TEST_F(AttachmentTest, WhatARankSendsAgainIsForwardedOnce) {
  StartJob(1);
  SayStep(1, 1);
  ranks_.Say(100, Saved(1, 2));
  Ack(coordinator_.heard.back().seq());
  ranks_.Hang(100);  // and with it, perhaps, the acknowledgement
  Attach(0, 200);
  EXPECT_EQ(Told(200), 2);
  ranks_.Say(200, Step(1, 1));
  ranks_.Say(200, Saved(1, 2));
  ranks_.Say(200, Step(2, 3));
  loop_.Advance(milliseconds(100));
  EXPECT_EQ(HeardSteps(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kJobReport).size(), 1u);
}

TEST_F(AttachmentTest, ACommandsOutcomeIsAReport) {
  StartJob(1);
  auto command = CommandMessage(Command::UPDATE, "c1");
  command.mutable_command()->mutable_spec()->set_priority(7);
  coordinator_.Say(command);
  const auto word = ranks_.heard[100].back().word();
  EXPECT_EQ(word.verb(), Command::UPDATE);
  EXPECT_EQ(word.spec().priority(), 7);
  for (const auto verb : {Command::HOLD, Command::RESUME, Command::CHECKPOINT_NOW}) {
    coordinator_.Say(CommandMessage(verb, Command::Verb_Name(verb)));
    EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
    EXPECT_EQ(ranks_.heard[100].back().word().verb(), verb);
  }
  ranks_.Say(100, Done("c1", 1));
  const auto report = coordinator_.heard.back().job_report();
  EXPECT_EQ(report.job_uid(), kRigJob);
  EXPECT_EQ(report.rank_seq(), 1);
  EXPECT_EQ(report.command_done().command_id(), "c1");
  EXPECT_EQ(report.command_done().step(), 9);
  // The coordinator has not heard that yet and says it again: the rank is not bothered.
  const size_t told = ranks_.heard[100].size();
  coordinator_.Say(command);
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  EXPECT_EQ(ranks_.heard[100].size(), told);
}

TEST_F(AttachmentTest, StatesCarryTheStep) {
  StartJob(1);
  RankMessage beat;
  beat.mutable_beat()->set_step(41);
  ranks_.Say(100, beat);
  RankMessage held;
  held.mutable_state()->set_state(RankState::HELD);
  held.mutable_state()->set_step(42);
  ranks_.Say(100, held);
  EXPECT_EQ(coordinator_.heard.back().rank_report().status().step(), 42);
  EndRank(0, {.code = 0});
  EXPECT_EQ(ExitReports().at(0).status().step(), 42);
}

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
  // The assignment that the coordinator may send again starts nothing.
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
  EXPECT_EQ(reports[0].status().exit_code(), 74);
  EXPECT_EQ(reports[0].status().step(), 12);
  EXPECT_EQ(reports[1].status().state(), RankState::DONE);
  // First what it had to say, then its end, then the end of all.
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

TEST_F(AttachmentTest, UnsentMessagesThatWereForwardedAreNotForwardedTwice) {
  StartJob(1);
  SayStep(1, 1);
  SayStep(2, 2);
  EndRank(0, {.code = 0, .unsent = Unsent({Step(1, 1), Step(2, 2), Step(3, 3)})});
  EXPECT_EQ(HeardSteps(), (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(AttachmentTest, ATornFileCountsUpToTheTear) {
  const std::string whole = Unsent({Step(1, 1), Step(2, 2)});
  for (size_t size = 0; size <= whole.size(); ++size) {
    int messages = 0;
    const bool ok = ReadUnsent(std::string_view(whole).substr(0, size),
                               [&messages](const RankMessage&) { ++messages; });
    const bool at_border = size == 0 || size == whole.size() / 2 || size == whole.size();
    EXPECT_EQ(ok, at_border) << size;
    EXPECT_EQ(messages, static_cast<int>(size / (whole.size() / 2))) << size;
  }
  EXPECT_FALSE(
      ReadUnsent(std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), [](auto&) {}));
}

TEST_F(AttachmentTest, TheRecordStaysUntilTheCoordinatorKnowsTheEnd) {
  StartJob(1);
  EndRank(0, {.signal = SIGSEGV});
  EXPECT_TRUE(Gone());
  EXPECT_EQ(store_.records.size(), 1u);
  // Killed before the acknowledgement: the next agent says it all again.
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
  EXPECT_TRUE(Gone());  // among what is sent again
}

TEST_F(AttachmentTest, WordsSurviveTheAgent) {
  StartJob(1);
  coordinator_.Say(CommandMessage(Command::HOLD, "c1"));
  coordinator_.Say(CommandMessage(Command::CHECKPOINT_NOW, "c2"));
  ranks_.Say(100, Done("c1", 1));
  RestartAgent();
  coordinator_.Say(CommandMessage(Command::RESUME, "c3"));
  AttachAgain(0, RankState::HELD, 9);
  std::vector<std::string> words;
  for (const AgentMessage& message : ranks_.heard[100]) {
    if (message.has_word()) words.push_back(message.word().command_id());
  }
  EXPECT_EQ(words, (std::vector<std::string>{"c2", "c3"}));
  // c1 is repeated by a coordinator that has not heard its outcome: done all the same.
  coordinator_.Say(CommandMessage(Command::HOLD, "c1"));
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  EXPECT_EQ(NumTold(0, AgentMessage::kWord), 2);
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
  RankMessage hello;  // nobody knows the token: an empty one opens nothing
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
  coordinator_.Say(CommandMessage(Command::STOP_WITH_SAVE, "c1"));  // not for want of disk
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
}  // namespace mt::agent
