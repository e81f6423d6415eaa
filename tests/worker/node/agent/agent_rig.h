// A fixture with an Agent whose seams are all fakes, and helpers to run a job on it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/node/agent/fakes.h"
#include "worker/node/agent/agent.h"

namespace mt::node {

inline constexpr char kRigJob[] = "job-uid-1";

class AgentTest : public testing::Test {
 protected:
  AgentTest() : loop_(&clock_) {
    char pattern[] = "/tmp/mt-agent-test-XXXXXX";
    dir_ = mkdtemp(pattern);
    Agent::Config config;
    config.node_name = "node-a";
    config.worker_uid = "worker-1";
    config.cpu_slots = 4;
    config.node.log_root = dir_;
    config.node.data_root = "/data";
    config.node.checkpoint_root = "/ckpt";
    config.node.address = "10.0.0.7";
    config.node.rank_state = dir_ + "/ranks";
    config.limits.session.max_unacked_steps = 100;
    config_ = config;
    agent_ = NewAgent();
    agent_->Start();
    coordinator_.Register();
  }
  ~AgentTest() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<Agent> NewAgent() {
    metrics_.reset();
    registry_ = std::make_unique<metrics::Registry>();
    metrics_ = std::make_unique<WorkerMetrics>(
        WorkerMetrics::Config{.node = "node-a", .version = "1"}, &loop_, registry_.get());
    return std::make_unique<Agent>(config_, Agent::Seams{.loop = &loop_,
                                                         .clock = &clock_,
                                                         .coordinator = &coordinator_,
                                                         .ranks = &ranks_,
                                                         .launcher = &launcher_,
                                                         .store = &store_,
                                                         .metrics = metrics_.get(),
                                                         .gpu_probe = &gpu_probe_,
                                                         .event_files = event_files_});
  }
  // Destroys the agent without notice and makes another one that adopts what it has recorded; that
  // one is not started yet.
  void ReplaceAgent() {
    agent_.reset();
    loop_.Clear();
    coordinator_.open = false;
    ranks_ = FakeRanks();
    launcher_ = FakeLauncher();
    gpu_probe_ = FakeGpuProbe();
    config_.worker_uid += "+";
    agent_ = NewAgent();
    for (const auto& [job, record] : std::map(store_.records)) agent_->Adopt(record, "");
  }
  void StartAgain() {
    loop_.RunPosted();
    agent_->Start();
    coordinator_.Register();
  }
  void RestartAgent() {
    ReplaceAgent();
    StartAgain();
  }
  // The coordinator acknowledges everything.
  void AckAll() {
    megatrain::v1::CoordinatorMessage ack;
    ack.mutable_report_ack()->set_seq(1'000'000);
    coordinator_.Say(ack);
    loop_.RunPosted();
  }

  megatrain::v1::CoordinatorMessage AssignMessage(int num_ranks, int64_t epoch = 1,
                                                  int first_slot = 0) {
    megatrain::v1::CoordinatorMessage message;
    auto& assign = *message.mutable_assign();
    assign.set_job_uid(kRigJob);
    assign.set_epoch(epoch);
    assign.mutable_spec()->set_name("demo");
    assign.set_world_size(num_ranks);
    assign.set_threads_per_rank(2);
    for (int rank = 0; rank < num_ranks; ++rank) {
      assign.add_ranks()->set_rank(rank);
      assign.mutable_ranks(rank)->set_slot(first_slot + rank);
    }
    return message;
  }
  void Assign(int num_ranks, int64_t epoch = 1) {
    coordinator_.Say(AssignMessage(num_ranks, epoch));
    loop_.RunPosted();
  }
  // The rank calls; on link 100 + rank unless another one is given.
  void Attach(int rank, LinkId link = kNoLink) {
    megatrain::v1::RankMessage message;
    message.mutable_hello()->set_job_uid(kRigJob);
    message.mutable_hello()->set_epoch(1);
    message.mutable_hello()->set_rank(rank);
    message.mutable_hello()->set_token(Token(rank));
    message.mutable_hello()->set_pid(4000 + rank);
    ranks_.Say(link == kNoLink ? 100 + rank : link, message);
  }
  std::string Token(int rank) const { return store_.records.at({kRigJob, 1}).ranks(rank).token(); }
  void StartJob(int num_ranks) {
    Assign(num_ranks);
    for (int rank = 0; rank < num_ranks; ++rank) Attach(rank);
  }
  void EndRank(int rank, RankExit exit) {
    exit.known = true;
    launcher_.End(launcher_.LaunchOf(rank), exit);
    loop_.RunPosted();
  }
  void SayFault(int rank, int exit_code, const std::string& text) {
    megatrain::v1::RankMessage message;
    message.mutable_fault()->set_exit_code(exit_code);
    message.mutable_fault()->set_message(text);
    message.mutable_fault()->set_cause(exit_code == 75 ? megatrain::v1::NETWORK
                                                       : megatrain::v1::NUMERIC);
    ranks_.Say(100 + rank, message);
  }
  void SayStep(int64_t step, int64_t seq = 0) {
    megatrain::v1::RankMessage message;
    message.set_seq(seq);
    message.mutable_step()->set_step(step);
    message.mutable_step()->set_loss(1.0 / static_cast<double>(step));
    ranks_.Say(100, message);
  }
  megatrain::v1::CoordinatorMessage CommandMessage(megatrain::v1::Command::Verb verb,
                                                   const std::string& id) {
    megatrain::v1::CoordinatorMessage message;
    message.mutable_command()->set_command_id(id);
    message.mutable_command()->set_job_uid(kRigJob);
    message.mutable_command()->set_epoch(1);
    message.mutable_command()->set_verb(verb);
    return message;
  }
  // The reports of ranks that have ended, in order.
  std::vector<megatrain::v1::RankReport> ExitReports() {
    std::vector<megatrain::v1::RankReport> reports;
    for (const auto& message : coordinator_.Heard(megatrain::v1::WorkerMessage::kRankReport)) {
      if (message.rank_report().status().exited()) reports.push_back(message.rank_report());
    }
    return reports;
  }
  bool Gone() { return !coordinator_.Heard(megatrain::v1::WorkerMessage::kAllocationGone).empty(); }
  int NumTold(int rank, megatrain::v1::AgentMessage::BodyCase kind) {
    int count = 0;
    for (const megatrain::v1::AgentMessage& message : ranks_.heard[100 + rank])
      count += message.body_case() == kind;
    return count;
  }

  base::ManualClock clock_;
  ManualLoop loop_;
  FakeCoordinator coordinator_;
  FakeRanks ranks_;
  FakeLauncher launcher_;
  FakeStore store_;
  FakeGpuProbe gpu_probe_;
  std::string dir_;
  EventFiles* event_files_ = nullptr;  // used by agents that are made from then on
  Agent::Config config_;
  std::unique_ptr<metrics::Registry> registry_;
  std::unique_ptr<WorkerMetrics> metrics_;
  std::unique_ptr<Agent> agent_;
};

}  // namespace mt::node
