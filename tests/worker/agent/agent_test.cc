// The agent's core with all its ends in the test's hands: what it answers, reports, repeats, ends.
#include "worker/agent/agent.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/agent/fakes.h"
#include "worker/agent/job_names.h"

namespace mt::agent {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::CoordinatorMessage;
using megatrain::v1::RankMessage;
using megatrain::v1::RankReport;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kJob[] = "job-uid-1";

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
    config.limits.max_unacked_steps = 100;
    agent_ = std::make_unique<Agent>(config, Agent::Seams{.loop = &loop_,
                                                          .clock = &clock_,
                                                          .coordinator = &coordinator_,
                                                          .ranks = &ranks_,
                                                          .launcher = &launcher_});
    agent_->Start();
    coordinator_.Register();
  }
  ~AgentTest() override { std::filesystem::remove_all(dir_); }

  CoordinatorMessage AssignMessage(int num_ranks, int64_t epoch = 1, int first_slot = 0) {
    CoordinatorMessage message;
    auto& assign = *message.mutable_assign();
    assign.set_job_uid(kJob);
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
  // The rank calls, on link 100 + rank where nothing else is said.
  void Attach(int rank, LinkId link = kNoLink) {
    RankMessage message;
    message.mutable_hello()->set_job_uid(kJob);
    message.mutable_hello()->set_epoch(1);
    message.mutable_hello()->set_rank(rank);
    message.mutable_hello()->set_token(launcher_.started[launcher_.LaunchOf(rank)].token);
    message.mutable_hello()->set_pid(4000 + rank);
    ranks_.Say(link == kNoLink ? 100 + rank : link, message);
  }
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
    RankMessage message;
    message.mutable_fault()->set_exit_code(exit_code);
    message.mutable_fault()->set_message(text);
    message.mutable_fault()->set_cause(exit_code == 75 ? megatrain::v1::NETWORK
                                                       : megatrain::v1::NUMERIC);
    ranks_.Say(100 + rank, message);
  }
  void SayStep(int64_t step) {
    RankMessage message;
    message.mutable_step()->set_step(step);
    message.mutable_step()->set_loss(1.0 / static_cast<double>(step));
    ranks_.Say(100, message);
  }
  CoordinatorMessage CommandMessage(Command::Verb verb, const std::string& id) {
    CoordinatorMessage message;
    message.mutable_command()->set_command_id(id);
    message.mutable_command()->set_job_uid(kJob);
    message.mutable_command()->set_epoch(1);
    message.mutable_command()->set_verb(verb);
    return message;
  }
  // Reports of ranks that have ended, in order.
  std::vector<RankReport> ExitReports() {
    std::vector<RankReport> reports;
    for (const auto& message : coordinator_.Heard(WorkerMessage::kRankReport)) {
      if (message.rank_report().status().exited()) reports.push_back(message.rank_report());
    }
    return reports;
  }
  bool Gone() { return !coordinator_.Heard(WorkerMessage::kAllocationGone).empty(); }
  int NumTold(int rank, AgentMessage::BodyCase kind) {
    int count = 0;
    for (const AgentMessage& message : ranks_.heard[100 + rank])
      count += message.body_case() == kind;
    return count;
  }

  base::ManualClock clock_;
  ManualLoop loop_;
  FakeCoordinator coordinator_;
  FakeRanks ranks_;
  FakeLauncher launcher_;
  std::string dir_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, RegistersItsSlots) {
  const auto message = coordinator_.heard.front();
  ASSERT_TRUE(message.has_register_());
  EXPECT_EQ(message.register_().node(), "node-a");
  EXPECT_EQ(message.register_().address(), "10.0.0.7");
  EXPECT_EQ(message.register_().slots_size(), 4);
  EXPECT_EQ(message.seq(), 0);
}

TEST_F(AgentTest, StartsRanksOnceHoweverOftenAssigned) {
  Assign(2);
  Assign(2);
  EXPECT_EQ(launcher_.started.size(), 2u);
  const auto replies = coordinator_.Heard(WorkerMessage::kAssignmentReply);
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_TRUE(replies[0].assignment_reply().accepted());
  EXPECT_TRUE(replies[1].assignment_reply().accepted());
  // Nor does a repetition start it again once it is over.
  EndRank(0, {.code = 0});
  EndRank(1, {.code = 0});
  ASSERT_TRUE(Gone());
  Assign(2);
  EXPECT_EQ(launcher_.started.size(), 2u);
}

TEST_F(AgentTest, TellsARankWhatToRun) {
  StartJob(2);
  const RankLaunch launch = launcher_.started[launcher_.LaunchOf(1)];
  EXPECT_EQ(launch.slot, 1);
  EXPECT_EQ(launch.threads, 2);
  ASSERT_EQ(ranks_.heard[101].size(), 1u);
  const auto& assignment = ranks_.heard[101][0].assignment();
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

TEST_F(AgentTest, RefusesCallsWithoutTheToken) {
  Assign(1);
  RankMessage hello;
  hello.mutable_hello()->set_job_uid(kJob);
  hello.mutable_hello()->set_epoch(1);
  hello.mutable_hello()->set_token("guess");
  ranks_.Say(7, hello);
  EXPECT_EQ(ranks_.refused[7], "wrong token for rank 0 of job job-uid-1");
  RankMessage step;
  step.mutable_step()->set_step(1);
  ranks_.Say(8, step);
  EXPECT_EQ(ranks_.refused[8], "the first message must be hello");
}

TEST_F(AgentTest, SendsUnacknowledgedReportsAgain) {
  StartJob(1);
  const auto before = coordinator_.heard;
  CoordinatorMessage ack;
  ack.mutable_report_ack()->set_seq(1);  // the assignment's reply
  coordinator_.Say(ack);
  coordinator_.Break("cut");
  RankMessage saved;
  saved.mutable_job_report()->mutable_checkpoint_saved()->set_step(12);
  ranks_.Say(100, saved);  // while nobody listens
  loop_.Advance(seconds(6));
  ASSERT_EQ(coordinator_.num_opened, 2);
  // Before the coordinator has answered, nothing but the registration, which says what runs here.
  ASSERT_EQ(coordinator_.heard.size(), 1u);
  const auto& again = coordinator_.heard[0].register_();
  ASSERT_EQ(again.allocations_size(), 1);
  EXPECT_EQ(again.allocations(0).ranks(0).state(), RankState::CONNECTED);
  EXPECT_EQ(again.slots(0).job_uid(), kJob);
  coordinator_.Register();
  const auto reports = coordinator_.Heard(WorkerMessage::kRankReport);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].seq(), 2);  // SPAWNED, with its old number
  EXPECT_EQ(reports[1].seq(), 3);
  const auto job = coordinator_.Heard(WorkerMessage::kJobReport);
  ASSERT_EQ(job.size(), 1u);
  EXPECT_EQ(job[0].seq(), 4);
  EXPECT_EQ(job[0].job_report().job_uid(), kJob);
  EXPECT_EQ(job[0].job_report().checkpoint_saved().step(), 12);
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kAssignmentReply).empty());  // acknowledged
}

TEST_F(AgentTest, ReconnectsWithBackoffUntilAnswered) {
  coordinator_.Break("down");
  std::vector<int64_t> waits;
  for (int attempt = 2; attempt < 14; ++attempt) {
    int64_t waited = 0;
    while (coordinator_.num_opened < attempt) {
      loop_.Advance(milliseconds(10));
      waited += 10;
    }
    waits.push_back(waited);
    coordinator_.Break("down");
  }
  EXPECT_LE(waits.front(), 250);
  EXPECT_GE(waits.front(), 150);
  for (const int64_t wait : waits) EXPECT_LE(wait, 6010);
  EXPECT_GE(waits.back(), 4000);
}

TEST_F(AgentTest, GivesUpAnAttemptThatIsNotAnswered) {
  coordinator_.Break("down");
  loop_.Advance(milliseconds(300));
  ASSERT_TRUE(coordinator_.open);
  EXPECT_FALSE(coordinator_.close_asked);
  loop_.Advance(seconds(5));
  EXPECT_TRUE(coordinator_.close_asked);
}

TEST_F(AgentTest, BeatsAndNoticesSilence) {
  CoordinatorMessage ack;
  ack.mutable_heartbeat_ack();
  for (int i = 0; i < 20; ++i) {
    loop_.Advance(seconds(2));
    coordinator_.Say(ack);
  }
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kHeartbeat).size(), 21u);
  EXPECT_FALSE(coordinator_.close_asked);
  loop_.Advance(seconds(33));
  EXPECT_TRUE(coordinator_.close_asked);
}

TEST_F(AgentTest, GathersSteps) {
  StartJob(1);
  for (int step = 1; step <= 5; ++step) SayStep(step);
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kSteps).empty());
  loop_.Advance(milliseconds(100));
  SayStep(6);
  // What is said after a step arrives after it.
  RankMessage ended;
  ended.mutable_job_report()->mutable_training_ended()->set_last_step(6);
  ranks_.Say(100, ended);
  const auto reports = coordinator_.Heard(WorkerMessage::kSteps);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].steps().steps_size(), 5);
  EXPECT_EQ(reports[0].steps().steps(2).loss(), 1.0 / 3.0);
  EXPECT_EQ(reports[1].steps().steps(0).step(), 6);
  EXPECT_EQ(coordinator_.heard.back().job_report().training_ended().last_step(), 6);
}

TEST_F(AgentTest, ADeadRankStopsTheOthersAndIsNamed) {
  StartJob(3);
  std::filesystem::create_directories(
      std::filesystem::path(RankLogFile(dir_, "demo", kJob, 1)).parent_path());
  std::ofstream(RankLogFile(dir_, "demo", kJob, 1)) << "first\nlast words\n";
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

TEST_F(AgentTest, ARankThatLostItsPeerIsNotTheCulprit) {
  StartJob(2);
  // The survivor notices first and reports before the kernel's news of the dead one arrives.
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

TEST_F(AgentTest, ARanksOwnWordsGoWithItsFault) {
  StartJob(1);
  SayFault(0, 74, "loss is nan at step 12");
  EndRank(0, {.code = 74});
  const auto reports = ExitReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].cause(), megatrain::v1::NUMERIC);
  EXPECT_EQ(reports[0].status().message(), "loss is nan at step 12; exit code 74 (not finite)");
  EXPECT_EQ(reports[0].status().exit_code(), 74);
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

TEST_F(AgentTest, WordsReachRankZeroAlsoWhenItComesLate) {
  Assign(2);
  coordinator_.Say(CommandMessage(Command::STOP_WITH_SAVE, "c1"));
  EXPECT_TRUE(coordinator_.heard.back().command_ack().accepted());
  Attach(0);
  Attach(1);
  EXPECT_EQ(NumTold(0, AgentMessage::kWord), 1);
  EXPECT_EQ(NumTold(1, AgentMessage::kWord), 0);
  coordinator_.Say(CommandMessage(Command::STOP_WITH_SAVE, "c1"));  // a repetition
  EXPECT_EQ(NumTold(0, AgentMessage::kWord), 1);
  ranks_.Hang(100);  // perhaps the word was lost with the stream
  Attach(0, 200);
  EXPECT_TRUE(ranks_.heard[200].back().has_word());
  RankMessage done;
  done.set_command_done("c1");
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

TEST_F(AgentTest, RelaysRendezvous) {
  StartJob(2);
  RankMessage get;
  get.mutable_rendezvous_get()->set_key("dp/0/1");
  ranks_.Say(100, get);
  ASSERT_EQ(coordinator_.heard.back().rendezvous_get().key(), "dp/0/1");
  EXPECT_EQ(coordinator_.heard.back().rendezvous_get().job_uid(), kJob);
  // The question survives a cut.
  coordinator_.Break("cut");
  loop_.Advance(seconds(1));
  coordinator_.Register();
  ASSERT_EQ(coordinator_.Heard(WorkerMessage::kRendezvousGet).size(), 1u);
  CoordinatorMessage value;
  value.mutable_rendezvous_value()->set_job_uid(kJob);
  value.mutable_rendezvous_value()->set_epoch(1);
  value.mutable_rendezvous_value()->set_key("dp/0/1");
  value.mutable_rendezvous_value()->set_value("address");
  coordinator_.Say(value);
  EXPECT_EQ(ranks_.heard[100].back().rendezvous_value().value(), "address");
  // What a rank of this node has set is known here.
  RankMessage set;
  set.mutable_rendezvous_set()->set_key("dp/0/0");
  set.mutable_rendezvous_set()->set_value("mine");
  ranks_.Say(100, set);
  EXPECT_GT(coordinator_.Heard(WorkerMessage::kRendezvousSet).at(0).seq(), 0);
  get.mutable_rendezvous_get()->set_key("dp/0/0");
  ranks_.Say(101, get);
  EXPECT_EQ(ranks_.heard[101].back().rendezvous_value().value(), "mine");
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kRendezvousGet).size(), 1u);
}

TEST_F(AgentTest, TailsLogsUntilTheJobIsGone) {
  StartJob(1);
  const std::string path = RankLogFile(dir_, "demo", kJob, 0);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path);
  file << "one\ntwo\nthree\nhalf a l" << std::flush;
  CoordinatorMessage request;
  request.mutable_log_request()->set_request_id(5);
  request.mutable_log_request()->set_job_uid(kJob);
  request.mutable_log_request()->set_job_name("demo");
  request.mutable_log_request()->set_lines(3);
  request.mutable_log_request()->set_follow(true);
  coordinator_.Say(request);
  const auto text = [this] {
    std::string all;
    for (const auto& message : coordinator_.Heard(WorkerMessage::kLogReply)) {
      EXPECT_EQ(message.log_reply().request_id(), 5);
      all += message.log_reply().chunk().data();
    }
    return all;
  };
  EXPECT_EQ(text(), "two\nthree\n");
  file << "ine\n" << std::flush;
  loop_.Advance(milliseconds(200));
  EXPECT_EQ(text(), "two\nthree\nhalf a line\n");
  coordinator_.queued_bytes = 1 << 20;  // a slow reader holds the tail up
  file << "four\n" << std::flush;
  loop_.Advance(seconds(1));
  EXPECT_EQ(text(), "two\nthree\nhalf a line\n");
  coordinator_.queued_bytes = 0;
  file << "last, unfinished" << std::flush;
  EndRank(0, {.code = 0});
  loop_.Advance(milliseconds(200));
  EXPECT_EQ(text(), "two\nthree\nhalf a line\nfour\nlast, unfinished");
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kLogReply).back().log_reply().chunk().end());
}

TEST_F(AgentTest, ALogThatDoesNotExistIsAnError) {
  CoordinatorMessage request;
  request.mutable_log_request()->set_request_id(6);
  request.mutable_log_request()->set_job_uid("another");
  request.mutable_log_request()->set_job_name("demo");
  coordinator_.Say(request);
  const auto chunk = coordinator_.heard.back().log_reply().chunk();
  EXPECT_TRUE(chunk.end());
  EXPECT_NE(chunk.error().find("No such file"), std::string::npos) << chunk.error();
}

TEST_F(AgentTest, ShutdownEndsRanksFirstAndSaysSo) {
  StartJob(1);
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

TEST_F(AgentTest, ShutdownDoesNotWaitForAnAbsentCoordinator) {
  coordinator_.Break("down");
  bool done = false;
  agent_->Shutdown([&done] { done = true; });
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace mt::agent
