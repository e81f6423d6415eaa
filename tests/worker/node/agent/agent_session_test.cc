// The agent's core and the coordinator: registration, reconnects, reports, rendezvous, logs.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/worker/node/agent/agent_rig.h"
#include "worker/node/ranks/job_names.h"

namespace mt::node {
namespace {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::RankMessage;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(AgentTest, RegistersItsSlots) {
  const auto message = coordinator_.heard.front();
  ASSERT_TRUE(message.has_register_());
  EXPECT_EQ(message.register_().node(), "node-a");
  EXPECT_EQ(message.register_().address(), "10.0.0.7");
  EXPECT_EQ(message.register_().slots_size(), 4);
  EXPECT_EQ(message.seq(), 0);
}

TEST_F(AgentTest, RefusesCallsWithoutTheToken) {
  Assign(1);
  RankMessage hello;
  hello.mutable_hello()->set_job_uid(kRigJob);
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
  ranks_.Say(100, saved);  // while there is no connection
  loop_.Advance(seconds(6));
  ASSERT_EQ(coordinator_.num_opened, 2);
  // Until the coordinator answers, only the registration is sent, which lists what runs here.
  ASSERT_EQ(coordinator_.heard.size(), 1u);
  const auto& again = coordinator_.heard[0].register_();
  ASSERT_EQ(again.allocations_size(), 1);
  EXPECT_EQ(again.allocations(0).ranks(0).state(), RankState::CONNECTED);
  EXPECT_EQ(again.slots(0).job_uid(), kRigJob);
  coordinator_.Register();
  const auto reports = coordinator_.Heard(WorkerMessage::kRankReport);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].seq(), 2);  // SPAWNED, with its old number
  EXPECT_EQ(reports[1].seq(), 3);
  const auto job = coordinator_.Heard(WorkerMessage::kJobReport);
  ASSERT_EQ(job.size(), 1u);
  EXPECT_EQ(job[0].seq(), 4);
  EXPECT_EQ(job[0].job_report().job_uid(), kRigJob);
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

TEST_F(AgentTest, TheCoordinatorTellsHowLongSilenceMayLast) {
  CoordinatorMessage registered;
  registered.mutable_registered()->set_coordinator_uid("coordinator-1");
  registered.mutable_registered()->set_lease_ms(8'000);
  coordinator_.Break("cut");
  loop_.Advance(seconds(1));
  coordinator_.Say(registered);
  loop_.Advance(seconds(8));
  EXPECT_FALSE(coordinator_.close_asked);
  loop_.Advance(seconds(2));
  EXPECT_TRUE(coordinator_.close_asked);
}

TEST_F(AgentTest, GathersSteps) {
  StartJob(1);
  for (int step = 1; step <= 5; ++step) SayStep(step);
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kSteps).empty());
  loop_.Advance(milliseconds(100));
  SayStep(6);
  // A report that follows a step arrives after it.
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

TEST_F(AgentTest, RelaysRendezvous) {
  StartJob(2);
  RankMessage get;
  get.mutable_rendezvous_get()->set_key("dp/0/1");
  ranks_.Say(100, get);
  ASSERT_EQ(coordinator_.heard.back().rendezvous_get().key(), "dp/0/1");
  EXPECT_EQ(coordinator_.heard.back().rendezvous_get().job_uid(), kRigJob);
  // The request is repeated after a reconnect.
  coordinator_.Break("cut");
  loop_.Advance(seconds(1));
  coordinator_.Register();
  ASSERT_EQ(coordinator_.Heard(WorkerMessage::kRendezvousGet).size(), 1u);
  CoordinatorMessage value;
  value.mutable_rendezvous_value()->set_job_uid(kRigJob);
  value.mutable_rendezvous_value()->set_epoch(1);
  value.mutable_rendezvous_value()->set_key("dp/0/1");
  value.mutable_rendezvous_value()->set_value("address");
  coordinator_.Say(value);
  EXPECT_EQ(ranks_.heard[100].back().rendezvous_value().value(), "address");
  // A value that a rank of this node has set is answered by the agent.
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
  const std::string path = RankLogFile(dir_, "demo", kRigJob, 0);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path);
  file << "one\ntwo\nthree\nhalf a l" << std::flush;
  CoordinatorMessage request;
  request.mutable_log_request()->set_request_id(5);
  request.mutable_log_request()->set_job_uid(kRigJob);
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
  coordinator_.queued_bytes = 1 << 20;  // a slow coordinator pauses the tail
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

// A trace lies beside the logs and is sent as it is, whatever bytes it has.
TEST_F(AgentTest, SendsTheTraceOfAJobWhole) {
  const auto trace = TraceFile(dir_, "demo", kRigJob, fmt::format("trace-{}.pb", kRigJob));
  ASSERT_TRUE(trace.ok()) << trace.status();
  std::filesystem::create_directories(std::filesystem::path(*trace).parent_path());
  std::string bytes = "begin\n";
  for (int i = 0; i < 700'000; ++i) bytes += static_cast<char>(i % 251);
  std::ofstream(*trace) << bytes;
  CoordinatorMessage request;
  request.mutable_log_request()->set_request_id(7);
  request.mutable_log_request()->set_job_uid(kRigJob);
  request.mutable_log_request()->set_job_name("demo");
  request.mutable_log_request()->set_trace(fmt::format("trace-{}.pb", kRigJob));
  coordinator_.Say(request);
  std::string got;
  for (const auto& message : coordinator_.Heard(WorkerMessage::kLogReply))
    got += message.log_reply().chunk().data();
  EXPECT_EQ(got.size(), bytes.size());
  EXPECT_TRUE(got == bytes);
  EXPECT_TRUE(coordinator_.heard.back().log_reply().chunk().end());
  EXPECT_EQ(coordinator_.heard.back().log_reply().chunk().error(), "");
}

// What a job has written is sent as it comes, from the byte that is asked for, whether lines end or
// not.
TEST_F(AgentTest, SendsAnOutputFromAnyByteOn) {
  StartJob(1);
  const std::string path = OutputFile(dir_, "demo", kRigJob);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path);
  file << "Once upon" << std::flush;
  CoordinatorMessage request;
  request.mutable_log_request()->set_request_id(9);
  request.mutable_log_request()->set_job_uid(kRigJob);
  request.mutable_log_request()->set_job_name("demo");
  request.mutable_log_request()->set_output(true);
  request.mutable_log_request()->set_offset(5);
  request.mutable_log_request()->set_follow(true);
  coordinator_.Say(request);
  const auto heard = [this] {
    std::vector<std::pair<int64_t, std::string>> all;
    for (const auto& message : coordinator_.Heard(WorkerMessage::kLogReply)) {
      const auto& chunk = message.log_reply().chunk();
      if (!chunk.data().empty()) all.emplace_back(chunk.offset(), chunk.data());
    }
    return all;
  };
  using Pieces = std::vector<std::pair<int64_t, std::string>>;
  EXPECT_EQ(heard(), (Pieces{{5, "upon"}}));
  file << " a time" << std::flush;
  loop_.Advance(milliseconds(200));
  EXPECT_EQ(heard(), (Pieces{{5, "upon"}, {9, " a time"}}));
  file << "\n" << std::flush;
  EndRank(0, {.code = 0});
  loop_.Advance(milliseconds(200));
  EXPECT_EQ(heard(), (Pieces{{5, "upon"}, {9, " a time"}, {16, "\n"}}));
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kLogReply).back().log_reply().chunk().end());
}

// A text that was begun anew is not taken for the one that was read until now.
TEST_F(AgentTest, AnOutputThatIsWrittenAnewIsNotMixedWithTheOneBefore) {
  StartJob(1);
  const std::string path = OutputFile(dir_, "demo", kRigJob);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "Once upon a time";
  CoordinatorMessage request;
  auto& log = *request.mutable_log_request();
  log.set_request_id(9);
  log.set_job_uid(kRigJob);
  log.set_job_name("demo");
  log.set_output(true);
  log.set_follow(true);
  coordinator_.Say(request);
  std::ofstream(path + ".new") << "There was another text, and it is longer";
  std::filesystem::rename(path + ".new", path);
  loop_.Advance(milliseconds(200));
  const auto said = coordinator_.Heard(WorkerMessage::kLogReply);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].log_reply().chunk().data(), "Once upon a time");
  EXPECT_EQ(said[1].log_reply().chunk().data(), "");
  EXPECT_TRUE(said[1].log_reply().chunk().end());
  EXPECT_NE(said[1].log_reply().chunk().error().find("writes its text anew"), std::string::npos);
  log.set_request_id(10);
  log.set_offset(1000);
  coordinator_.Say(request);
  const auto beyond = coordinator_.Heard(WorkerMessage::kLogReply).back().log_reply().chunk();
  EXPECT_TRUE(beyond.end());
  EXPECT_NE(beyond.error().find("it was begun anew"), std::string::npos) << beyond.error();
}

TEST_F(AgentTest, ANameThatIsNoTraceOfTheJobOpensNothing) {
  for (const std::string name : {"../../etc/passwd", "trace-another.pb", "rank-00000.log"}) {
    CoordinatorMessage request;
    request.mutable_log_request()->set_request_id(8);
    request.mutable_log_request()->set_job_uid(kRigJob);
    request.mutable_log_request()->set_job_name("demo");
    request.mutable_log_request()->set_trace(name);
    coordinator_.Say(request);
    const auto& chunk = coordinator_.heard.back().log_reply().chunk();
    EXPECT_TRUE(chunk.end());
    EXPECT_NE(chunk.error().find("has no trace"), std::string::npos) << chunk.error();
    EXPECT_EQ(chunk.data(), "");
  }
}

TEST_F(AgentTest, ShutdownDoesNotWaitForAnAbsentCoordinator) {
  coordinator_.Break("down");
  bool done = false;
  agent_->Shutdown([&done] { done = true; });
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace mt::node
