// A fake agent for tests of ranks: listens on a real socket, answers every hello with an
// assignment, acknowledges reports and records what it receives. Destroying it simulates its death.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/mutex.h"
#include "megatrain/v1/rank.pb.h"
#include "worker/node/agent/grpc_rank_server.h"
#include "worker/node/loop/asio_event_loop.h"

namespace mt::rank {

// Threads: its loop's, and any that calls its methods, which wait for what they ask for.
class TestAgent final : private node::RankLinks::Listener {
 public:
  using RankMessage = megatrain::v1::RankMessage;
  using AgentMessage = megatrain::v1::AgentMessage;
  struct Options {
    bool refuse = false;
    bool acknowledge = true;  // every numbered message, at once
    // Called before each hello is answered; on the loop's thread.
    std::function<void()> before_assignment;
    // Its disk: called with each message before that is acknowledged; on the loop's thread.
    std::function<void(const RankMessage&)> keep;
    megatrain::v1::RankAssignment assignment;
  };

  explicit TestAgent(const std::string& socket) : TestAgent(socket, Options()) {}
  TestAgent(const std::string& socket, Options options)
      : options_(std::move(options)), server_(std::make_unique<node::GrpcRankServer>(&loop_)) {
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
  // As of the newest beat; -1: none came.
  int64_t Progress() {
    base::MutexLock lock(&mu_);
    return progress_;
  }
  void AwaitBeat(int64_t progress) {
    base::MutexLock lock(&mu_);
    while (progress_ < progress) changed_.Wait(&mu_);
  }
  void AwaitTelemetry(int64_t tokens) {
    base::MutexLock lock(&mu_);
    while (telemetry_tokens_ != tokens) changed_.Wait(&mu_);
  }
  // The newest beat, once it is as wanted.
  megatrain::v1::RankBeat AwaitBeatWith(
      const std::function<bool(const megatrain::v1::RankBeat&)>& wanted) {
    base::MutexLock lock(&mu_);
    while (!wanted(beat_)) changed_.Wait(&mu_);
    return beat_;
  }
  void AwaitClosed() {
    base::MutexLock lock(&mu_);
    while (!closed_) changed_.Wait(&mu_);
  }
  // Reads on until a message is as wanted, and returns that one.
  RankMessage Await(const std::function<bool(const RankMessage&)>& wanted) {
    for (;;) {
      RankMessage message = Next();
      if (wanted(message)) return message;
    }
  }
  void Say(const AgentMessage& message) {
    loop_.Post([this, message] { server_->Send(link_, message); });
  }

 private:
  void OnRankMessage(node::LinkId link, const RankMessage& message) override {
    if (message.has_hello() && options_.refuse) return server_->Refuse(link, "unknown job");
    if (message.has_hello()) {
      if (options_.before_assignment) options_.before_assignment();
      link_ = link;
      AgentMessage answer;
      *answer.mutable_assignment() = options_.assignment;
      server_->Send(link, answer);
    }
    if (options_.keep) options_.keep(message);
    if (message.seq() > 0 && options_.acknowledge) {
      AgentMessage ack;
      ack.mutable_ack()->set_seq(message.seq());
      server_->Send(link, ack);
    }
    base::MutexLock lock(&mu_);
    if (message.has_beat()) {
      beat_ = message.beat();
      progress_ = message.beat().progress();
      telemetry_tokens_ = message.beat().telemetry().tokens();
    } else {
      heard_.push_back(message);
    }
    changed_.NotifyAll();
  }
  void OnRankClosed(node::LinkId) override {
    base::MutexLock lock(&mu_);
    closed_ = true;
    changed_.NotifyAll();
  }

  const Options options_;
  node::AsioEventLoop loop_;
  std::unique_ptr<node::GrpcRankServer> server_;
  std::thread thread_;
  node::LinkId link_ = node::kNoLink;  // loop thread
  base::Mutex mu_;
  base::CondVar changed_;
  std::deque<RankMessage> heard_ GUARDED_BY(mu_);
  megatrain::v1::RankBeat beat_ GUARDED_BY(mu_);
  int64_t progress_ GUARDED_BY(mu_) = -1;
  int64_t telemetry_tokens_ GUARDED_BY(mu_) = -1;
  bool closed_ GUARDED_BY(mu_) = false;
};

}  // namespace mt::rank
