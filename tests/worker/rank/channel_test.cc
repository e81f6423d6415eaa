// A rank's connection to its agent over a real Unix socket: the rank's end against the agent's.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/rank.pb.h"
#include "tests/worker/data/temp_data.h"
#include "tests/worker/rank/test_agent.h"
#include "worker/node/ranks/unsent_messages.h"
#include "worker/rank/agent_channel.h"

namespace mt::rank {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::RankAssignment;
using megatrain::v1::RankMessage;
using std::chrono::seconds;

class ChannelTest : public testing::Test {
 protected:
  AgentChannel::Config Config() const {
    return {.socket = "unix:" + socket_, .job_uid = "job-1", .epoch = 2, .rank = 1, .token = "t"};
  }
  static RankMessage Step(int64_t step) {
    RankMessage message;
    message.mutable_step()->set_step(step);
    return message;
  }
  // Two ranks; acknowledges or not.
  static TestAgent::Options Agent(bool acknowledge = true) {
    TestAgent::Options options{.acknowledge = acknowledge};
    options.assignment.set_world_size(2);
    return options;
  }
  data::TempDir dir_;
  const std::string socket_ = dir_.Path("s");
};

// The process stands still for longer than it would wait, and its agent, which has heard it before,
// answers once it runs again: nothing else has to happen in the time that it waits.
TEST_F(ChannelTest, TimeInWhichTheProcessStandsStillIsNoSilence) {
  constexpr seconds kLimit{3};
  std::array<int, 2> waits{};  // a byte: the wait begins
  std::array<int, 2> runs{};   // a byte: the process runs again
  ASSERT_EQ(::pipe2(waits.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(runs.data(), O_CLOEXEC), 0);
  const pid_t self = ::getpid();
  const pid_t other = ::fork();
  if (other == 0) {
    char byte = 0;
    if (::read(waits[0], &byte, 1) != 1) ::_exit(1);
    ::kill(self, SIGSTOP);
    ::usleep(3'200'000);
    ::kill(self, SIGCONT);
    ::_exit(::write(runs[1], "x", 1) == 1 ? 0 : 1);
  }
  TestAgent::Options options = Agent();
  options.before_assignment = [&runs] {
    char byte = 0;
    EXPECT_EQ(::read(runs[0], &byte, 1), 1);
  };
  TestAgent agent(socket_, options);
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankAssignment assignment;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(::write(waits[1], "x", 1), 1);
  const Status status = channel.WaitAssigned(kLimit, &assignment);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GT(std::chrono::steady_clock::now() - begin, kLimit) << "it did not stand still";
  int ended = 0;
  EXPECT_EQ(::waitpid(other, &ended, 0), other);
  EXPECT_EQ(ended, 0);
  for (const int fd : {waits[0], waits[1], runs[0], runs[1]}) ::close(fd);
}

TEST_F(ChannelTest, SaysWhoItIsAndHearsWhatToRun) {
  TestAgent agent(socket_, Agent());
  std::atomic<bool> asked_to_leave = false;
  AgentChannel channel(Config(), [&asked_to_leave](const AgentMessage& message) {
    asked_to_leave = message.has_exit();
  });
  RankAssignment assignment;
  ASSERT_TRUE(channel.WaitAssigned(seconds(60), &assignment).ok());
  EXPECT_EQ(assignment.world_size(), 2);
  const RankMessage hello = agent.Next();
  EXPECT_EQ(hello.hello().job_uid(), "job-1");
  EXPECT_EQ(hello.hello().epoch(), 2);
  EXPECT_EQ(hello.hello().rank(), 1);
  EXPECT_EQ(hello.hello().token(), "t");
  AgentMessage exit;
  exit.mutable_exit()->set_reason("rank 0 failed");
  agent.Say(exit);
  while (!asked_to_leave) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) channel.NoteProgress(7);
  agent.AwaitBeat(3);
}

TEST_F(ChannelTest, WhatIsSentLastArrivesBeforeTheEnd) {
  TestAgent agent(socket_);
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankAssignment assignment;
  ASSERT_TRUE(channel.WaitAssigned(seconds(60), &assignment).ok());
  for (int64_t step = 1; step <= 2000; ++step) channel.Send(Step(step));
  channel.Close(seconds(60));
  EXPECT_TRUE(agent.Next().has_hello());
  for (int64_t step = 1; step <= 2000; ++step) ASSERT_EQ(agent.Next().step().step(), step);
  agent.AwaitClosed();
}

TEST_F(ChannelTest, CallsAgainWhenTheAgentIsBack) {
  auto agent = std::make_unique<TestAgent>(socket_);
  std::atomic<int> attached = 0;
  AgentChannel::Config config = Config();
  config.on_attached = [&attached] { ++attached; };
  AgentChannel channel(std::move(config), [](const AgentMessage&) {});
  RankAssignment assignment;
  ASSERT_TRUE(channel.WaitAssigned(seconds(60), &assignment).ok());
  while (attached == 0) std::this_thread::yield();
  EXPECT_EQ(attached, 1);
  agent = nullptr;
  TestAgent again(socket_);
  EXPECT_TRUE(again.Next().has_hello());
  while (attached == 1) std::this_thread::yield();
  channel.Send(Step(5));
  EXPECT_EQ(again.Next().step().step(), 5);
}

RankMessage Report(int64_t last_step) {
  RankMessage message;
  message.mutable_job_report()->mutable_training_ended()->set_last_step(last_step);
  return message;
}

RankMessage State(megatrain::v1::RankState state, int64_t step) {
  RankMessage message;
  message.mutable_state()->set_state(state);
  message.mutable_state()->set_step(step);
  return message;
}

std::vector<RankMessage> Parse(const std::string& bytes) {
  std::vector<RankMessage> messages;
  EXPECT_TRUE(node::ReadUnsent(
      bytes, [&messages](const RankMessage& message) { messages.push_back(message); }));
  return messages;
}

TEST_F(ChannelTest, WhatAHeldRankHasCountedComesBeforeTheNews) {
  TestAgent agent(socket_);
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankAssignment assignment;
  ASSERT_TRUE(channel.WaitAssigned(seconds(60), &assignment).ok());
  EXPECT_TRUE(agent.Next().has_hello());
  agent.AwaitBeat(0);
  for (int round = 1; round <= 5; ++round) {  // much faster than beats come by themselves
    channel.NoteProgress(round);
    channel.Send(State(megatrain::v1::HELD, round));
    EXPECT_EQ(agent.Next().state().step(), round);
    EXPECT_EQ(agent.Progress(), round);
  }
}

TEST_F(ChannelTest, WhatNobodyAcknowledgedGoesToTheNextAgent) {
  auto agent = std::make_unique<TestAgent>(socket_, Agent(/*acknowledge=*/false));
  std::atomic<int> markers = 0;
  AgentChannel channel(Config(), [&markers](const AgentMessage&) { ++markers; });
  RankAssignment assignment;
  ASSERT_TRUE(channel.WaitAssigned(seconds(60), &assignment).ok());
  EXPECT_EQ(agent->Next().hello().state(), megatrain::v1::CONNECTED);
  channel.Send(State(megatrain::v1::TRAINING, 0));
  for (int64_t step = 1; step <= 4; ++step) channel.Send(Step(step));
  channel.Send(Report(4));
  EXPECT_TRUE(agent->Next().has_state());
  for (int64_t seq = 1; seq <= 4; ++seq) {
    const RankMessage heard = agent->Next();
    EXPECT_EQ(heard.seq(), seq);
    EXPECT_EQ(heard.step().step(), seq);
  }
  const RankMessage report = agent->Next();
  EXPECT_EQ(report.seq(), 5);
  EXPECT_EQ(report.job_report().rank_seq(), 5);
  // Two of them are on the coordinator's disk; what follows on the stream comes after that.
  AgentMessage ack;
  ack.mutable_ack()->set_seq(2);
  agent->Say(ack);
  AgentMessage marker;
  marker.mutable_word()->set_command_id("x");
  agent->Say(marker);
  while (markers == 0) std::this_thread::yield();
  channel.NoteProgress(4);
  channel.Send(State(megatrain::v1::HELD, 4));
  EXPECT_TRUE(agent->Next().has_state());
  agent = nullptr;

  channel.Send(Step(5));
  TestAgent again(socket_);
  const RankMessage hello = again.Next();
  EXPECT_EQ(hello.hello().state(), megatrain::v1::HELD);
  EXPECT_EQ(hello.hello().step(), 4);
  EXPECT_EQ(again.Next().step().step(), 3);
  EXPECT_EQ(again.Next().step().step(), 4);
  EXPECT_EQ(again.Next().job_report().training_ended().last_step(), 4);
  const RankMessage newest = again.Next();
  EXPECT_EQ(newest.step().step(), 5) << "the old ones first";
  EXPECT_EQ(newest.seq(), 6);
  channel.Close(seconds(60));
  EXPECT_TRUE(channel.Unacknowledged().empty());
}

TEST_F(ChannelTest, WhatStaysUnacknowledgedIsLeftBehind) {
  TestAgent agent(socket_, Agent(/*acknowledge=*/false));
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankAssignment assignment;
  ASSERT_TRUE(channel.WaitAssigned(seconds(60), &assignment).ok());
  channel.Send(Step(1));
  channel.Send(State(megatrain::v1::EXITING, 1));
  channel.Send(Report(1));
  EXPECT_TRUE(agent.Next().has_hello());
  for (int i = 0; i < 3; ++i) agent.Next();  // all were heard
  channel.Close(std::chrono::milliseconds(20));
  const std::vector<RankMessage> left = Parse(channel.Unacknowledged());
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].step().step(), 1);
  EXPECT_EQ(left[0].seq(), 1);
  EXPECT_EQ(left[1].job_report().rank_seq(), 2);
}

TEST_F(ChannelTest, AFaultThatNobodyHeardIsLeftBehind) {
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankMessage fault;
  fault.mutable_fault()->set_message("out of memory");
  channel.Send(State(megatrain::v1::EXITING, 0));
  channel.Send(fault);
  channel.Close(std::chrono::milliseconds(0));
  const std::vector<RankMessage> left = Parse(channel.Unacknowledged());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].fault().message(), "out of memory");
}

// An agent that is stopped in the middle of its work: it accepts, reads nothing and says nothing.
TEST_F(ChannelTest, AFrozenAgentHoldsNobodyUp) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  AgentChannel::Config config = Config();
  config.queue_limit = 1000;
  AgentChannel channel(config, [](const AgentMessage&) {});
  for (int64_t step = 1; step <= 20000; ++step) {
    channel.Send(Step(step));
    channel.NoteProgress(step);
  }
  channel.Send(Report(20000));
  channel.Close(std::chrono::milliseconds(0));
  const std::vector<RankMessage> left = Parse(channel.Unacknowledged());
  EXPECT_LE(left.size(), 1001U);
  EXPECT_GT(left.size(), 500U);
  EXPECT_EQ(left.back().job_report().training_ended().last_step(), 20000);
  EXPECT_EQ(left[left.size() - 2].step().step(), 20000) << "the newest steps are all there";
  EXPECT_EQ(left.front().step().step(), 1) << "and the old ones are thinned out, not cut off";
  ::close(listener);
}

TEST_F(ChannelTest, BeatsCarryTelemetryAndWhereTheDeviceStands) {
  TestAgent agent(socket_);
  AgentChannel::Config config = Config();
  config.fill_beat = [](megatrain::v1::RankBeat* out) {
    out->mutable_telemetry()->set_tokens(77);
    out->mutable_mark()->set_text("end of step 3; 0 marks enqueued behind it");
  };
  AgentChannel channel(config, [](const AgentMessage&) {});
  channel.NoteProgress(3);
  agent.AwaitTelemetry(77);
  const auto beat =
      agent.AwaitBeatWith([](const megatrain::v1::RankBeat& b) { return b.step() == 3; });
  EXPECT_EQ(beat.progress(), 1);
  EXPECT_EQ(beat.mark().text(), "end of step 3; 0 marks enqueued behind it");
}

TEST_F(ChannelTest, TakesNoForAnAnswer) {
  TestAgent agent(socket_, {.refuse = true});
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankAssignment assignment;
  const Status status = channel.WaitAssigned(seconds(60), &assignment);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(base::Message(status), "the agent refuses this rank: unknown job");
}

TEST_F(ChannelTest, AnAbsentAgentIsNotWaitedForForever) {
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankAssignment assignment;
  EXPECT_TRUE(
      absl::IsUnavailable(channel.WaitAssigned(std::chrono::milliseconds(50), &assignment)));
}

}  // namespace
}  // namespace mt::rank
