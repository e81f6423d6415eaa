// A rank's call to its agent over a real Unix socket: the rank's end against the agent's.
#include <atomic>
#include <deque>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/mutex.h"
#include "megatrain/v1/rank.pb.h"
#include "tests/worker/data/temp_data.h"
#include "worker/agent/asio_event_loop.h"
#include "worker/agent/grpc_rank_server.h"
#include "worker/rank/agent_channel.h"

namespace mt::rank {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::RankAssignment;
using megatrain::v1::RankMessage;
using std::chrono::seconds;

// An agent that answers every hello with an assignment and keeps what it hears.
class TestAgent final : private agent::RankLinks::Listener {
 public:
  explicit TestAgent(const std::string& socket, bool refuse = false)
      : refuse_(refuse), server_(std::make_unique<agent::GrpcRankServer>(&loop_)) {
    server_->SetListener(this);
    const Status listening = server_->Listen(socket);
    EXPECT_TRUE(listening.ok()) << listening;
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~TestAgent() override {
    loop_.Stop();
    thread_.join();
    server_.reset();
  }

  // The next message that is no beat.
  RankMessage Next() {
    base::MutexLock lock(&mu_);
    while (heard_.empty()) changed_.Wait(&mu_);
    RankMessage message = std::move(heard_.front());
    heard_.pop_front();
    return message;
  }
  void AwaitBeat(int64_t progress) {
    base::MutexLock lock(&mu_);
    while (progress_ < progress) changed_.Wait(&mu_);
  }
  void AwaitClosed() {
    base::MutexLock lock(&mu_);
    while (!closed_) changed_.Wait(&mu_);
  }
  void Say(const AgentMessage& message) {
    loop_.Post([this, message] { server_->Send(link_, message); });
  }

 private:
  void OnRankMessage(agent::LinkId link, const RankMessage& message) override {
    if (message.has_hello() && refuse_) return server_->Refuse(link, "unknown job");
    if (message.has_hello()) {
      link_ = link;
      AgentMessage answer;
      answer.mutable_assignment()->set_world_size(2);
      server_->Send(link, answer);
    }
    base::MutexLock lock(&mu_);
    if (message.has_beat()) {
      progress_ = message.beat().progress();
    } else {
      heard_.push_back(message);
    }
    changed_.NotifyAll();
  }
  void OnRankClosed(agent::LinkId) override {
    base::MutexLock lock(&mu_);
    closed_ = true;
    changed_.NotifyAll();
  }

  const bool refuse_;
  agent::AsioEventLoop loop_;
  std::unique_ptr<agent::GrpcRankServer> server_;
  std::thread thread_;
  agent::LinkId link_ = agent::kNoLink;  // loop thread
  base::Mutex mu_;
  base::CondVar changed_;
  std::deque<RankMessage> heard_ GUARDED_BY(mu_);
  int64_t progress_ GUARDED_BY(mu_) = -1;
  bool closed_ GUARDED_BY(mu_) = false;
};

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
  data::TempDir dir_;
  const std::string socket_ = dir_.Path("s");
};

TEST_F(ChannelTest, SaysWhoItIsAndHearsWhatToRun) {
  TestAgent agent(socket_);
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
  AgentChannel channel(Config(), [](const AgentMessage&) {});
  RankAssignment assignment;
  ASSERT_TRUE(channel.WaitAssigned(seconds(60), &assignment).ok());
  agent = nullptr;
  TestAgent again(socket_);
  EXPECT_TRUE(again.Next().has_hello());
  channel.Send(Step(5));
  EXPECT_EQ(again.Next().step().step(), 5);
}

TEST_F(ChannelTest, TakesNoForAnAnswer) {
  TestAgent agent(socket_, /*refuse=*/true);
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
