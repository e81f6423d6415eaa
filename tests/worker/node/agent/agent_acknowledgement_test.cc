// A rank's reports arrive once and in order although connections, agents and coordinators come and
// go, and so do the commands in the other direction.
#include <gtest/gtest.h>

#include "tests/worker/node/agent/attachment_rig.h"
#include "worker/node/ranks/unsent_messages.h"

namespace mt::node {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::RankMessage;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;

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
  ASSERT_LT(steps[0].seq(), saved[0].seq());  // in the order in which the rank sent them
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
  ranks_.Hang(100);  // the acknowledgement may be lost with the call
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
  // The coordinator does not know that yet and repeats the command, which does not reach the rank.
  const size_t told = ranks_.heard[100].size();
  coordinator_.Say(command);
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  EXPECT_EQ(ranks_.heard[100].size(), told);
}

// What readers have named reaches rank 0, the whole set each time.
TEST_F(AttachmentTest, StepsThatAreKeptReachTheRank) {
  StartJob(1);
  auto command = CommandMessage(Command::KEEP_STEPS, "k1");
  command.mutable_command()->add_kept_steps(20);
  command.mutable_command()->add_kept_steps(30);
  coordinator_.Say(command);
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  const auto word = ranks_.heard[100].back().word();
  EXPECT_EQ(word.verb(), Command::KEEP_STEPS);
  ASSERT_EQ(word.kept_steps_size(), 2);
  EXPECT_EQ(word.kept_steps(1), 30);
  coordinator_.Say(CommandMessage(Command::KEEP_STEPS, "k2"));
  EXPECT_EQ(ranks_.heard[100].back().word().kept_steps_size(), 0);
}

// What is to be written reaches rank 0.
TEST_F(AttachmentTest, TextsThatAreAskedForReachTheRank) {
  StartJob(1);
  auto command = CommandMessage(Command::DECODE, "d1");
  command.mutable_command()->mutable_generate()->add_prompts("Once");
  coordinator_.Say(command);
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  const auto word = ranks_.heard[100].back().word();
  EXPECT_EQ(word.verb(), Command::DECODE);
  ASSERT_EQ(word.generate().prompts_size(), 1);
  EXPECT_EQ(word.generate().prompts(0), "Once");
}

// A label reaches the rank, by an agent's record too.
TEST_F(AttachmentTest, ACheckpointsLabelSurvivesTheAgent) {
  StartJob(1);
  auto command = CommandMessage(Command::CHECKPOINT_NOW, "c1");
  command.mutable_command()->mutable_label()->set_tag("best");
  (*command.mutable_command()->mutable_label()->mutable_meta())["loss"] = "3.2";
  coordinator_.Say(command);
  coordinator_.Say(CommandMessage(Command::CHECKPOINT_NOW, "c2"));
  EXPECT_FALSE(ranks_.heard[100].back().word().has_label());
  const auto expect_label = [](const AgentMessage& message) {
    EXPECT_EQ(message.word().command_id(), "c1");
    EXPECT_EQ(message.word().label().tag(), "best");
    ASSERT_EQ(message.word().label().meta_size(), 1);
    EXPECT_EQ(message.word().label().meta().at("loss"), "3.2");
  };
  expect_label(ranks_.heard[100].at(ranks_.heard[100].size() - 2));
  RestartAgent();
  AttachAgain(0, RankState::TRAINING, 9);
  for (const AgentMessage& message : ranks_.heard[100]) {
    if (message.has_word() && message.word().command_id() == "c1") return expect_label(message);
  }
  ADD_FAILURE() << "the command is lost";
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

TEST_F(AttachmentTest, CommandsSurviveTheAgent) {
  StartJob(1);
  coordinator_.Say(CommandMessage(Command::HOLD, "c1"));
  coordinator_.Say(CommandMessage(Command::CHECKPOINT_NOW, "c2"));
  ranks_.Say(100, Done("c1", 1));
  RestartAgent();
  coordinator_.Say(CommandMessage(Command::RESUME, "c3"));
  AttachAgain(0, RankState::HELD, 9);
  std::vector<std::string> commands;
  for (const AgentMessage& message : ranks_.heard[100]) {
    if (message.has_word()) commands.push_back(message.word().command_id());
  }
  EXPECT_EQ(commands, (std::vector<std::string>{"c2", "c3"}));
  // A coordinator that does not know the outcome of c1 repeats it; it is not executed again.
  coordinator_.Say(CommandMessage(Command::HOLD, "c1"));
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  EXPECT_EQ(NumTold(0, AgentMessage::kWord), 2);
}

}  // namespace
}  // namespace mt::node
