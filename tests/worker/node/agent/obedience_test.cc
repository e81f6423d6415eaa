// Whom an agent obeys: the file that it keeps, and a session with a coordinator that is not the
// newest of its cluster.
#include "worker/node/agent/obedience.h"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "common/base/files.h"
#include "common/rpc/reason.h"
#include "tests/worker/node/agent/agent_rig.h"
#include "worker/node/agent/cluster_file.h"
#include "worker/node/agent/health.h"

namespace mt::node {
namespace {

using megatrain::v1::CoordinatorMessage;
using megatrain::v1::Register;
using megatrain::v1::Registered;
using megatrain::v1::WorkerMessage;
using std::chrono::seconds;

constexpr char kCluster[] = "7e1cfe5a-7a3b-4a52-9fb0-3a3f25e3b2a1";
constexpr char kOther[] = "0b2f0d4e-11f1-4f0e-8f65-5b8f5b8d5c11";

class FakeClusterStore final : public ClusterStore {
 public:
  Status Save(const ClusterState& state) override {
    RETURN_IF_ERROR(status);
    saved.push_back(state);
    return OkStatus();
  }
  std::vector<ClusterState> saved;
  Status status;
};

Registered From(const std::string& cluster, int64_t term, const std::string& uid) {
  Registered registered;
  registered.set_cluster_id(cluster);
  registered.set_term(term);
  registered.set_coordinator_uid(uid);
  return registered;
}

TEST(ObedienceTest, TheFirstCoordinatorIsObeyedAndKept) {
  FakeClusterStore store;
  Obedience obedience({}, &store);
  ASSERT_TRUE(obedience.Check(From(kCluster, 4, "one")).ok());
  const ClusterState kept{.cluster_id = kCluster, .term = 4, .coordinator_uid = "one"};
  ASSERT_EQ(store.saved, std::vector{kept});
  ASSERT_TRUE(obedience.Check(From(kCluster, 4, "one")).ok());
  EXPECT_EQ(store.saved.size(), 1u) << "written when it changes only";
  Register hello;
  obedience.FillRegister(&hello);
  EXPECT_EQ(hello.cluster_id(), kCluster);
  EXPECT_EQ(hello.term(), 4);
  EXPECT_EQ(hello.coordinator_uid(), "one");
}

TEST(ObedienceTest, AHigherTermIsObeyed) {
  FakeClusterStore store;
  Obedience obedience({.cluster_id = kCluster, .term = 4, .coordinator_uid = "one"}, &store);
  ASSERT_TRUE(obedience.Check(From(kCluster, 5, "two")).ok());
  const ClusterState kept{.cluster_id = kCluster, .term = 5, .coordinator_uid = "two"};
  EXPECT_EQ(store.saved, std::vector{kept});
}

TEST(ObedienceTest, OthersAreNotObeyedAndLeaveNoTrace) {
  FakeClusterStore store;
  const ClusterState known{.cluster_id = kCluster, .term = 4, .coordinator_uid = "one"};
  Obedience obedience(known, &store);
  const auto reason = [&](const Registered& registered) {
    return rpc::ReasonOf(obedience.Check(registered));
  };
  EXPECT_EQ(reason(From(kOther, 9, "two")), rpc::reason::kWrongCluster);
  EXPECT_EQ(reason(From("", 0, "two")), rpc::reason::kWrongCluster);
  EXPECT_EQ(reason(From(kCluster, 3, "one")), rpc::reason::kTermSuperseded);
  EXPECT_EQ(reason(From(kCluster, 4, "two")), rpc::reason::kTermSuperseded);
  EXPECT_THAT(obedience.refusal(), testing::StartsWith("TERM_SUPERSEDED: "));
  EXPECT_TRUE(store.saved.empty());
  EXPECT_EQ(obedience.known(), known);
  ASSERT_TRUE(obedience.Check(From(kCluster, 4, "one")).ok());
  EXPECT_EQ(obedience.refusal(), "");
}

TEST(ObedienceTest, AfterJoiningAnyCoordinatorOfTheClusterIsObeyed) {
  Obedience obedience({.cluster_id = kCluster, .term = 0, .coordinator_uid = ""}, nullptr);
  EXPECT_FALSE(obedience.Check(From(kOther, 1, "one")).ok());
  EXPECT_TRUE(obedience.Check(From(kCluster, 1, "one")).ok());
}

TEST(ObedienceTest, WhatCannotBeKeptIsNotObeyed) {
  FakeClusterStore store;
  store.status = base::Unavailable("no space left");
  Obedience obedience({.cluster_id = kCluster, .term = 4, .coordinator_uid = "one"}, &store);
  EXPECT_FALSE(obedience.Check(From(kCluster, 5, "two")).ok());
  EXPECT_EQ(obedience.known().term, 4);
  EXPECT_THAT(obedience.refusal(), testing::HasSubstr("no space left"));
  EXPECT_TRUE(obedience.Check(From(kCluster, 4, "one")).ok());
}

TEST(ObedienceTest, ARefusalByTheCoordinatorStandsUntilOneIsObeyed) {
  Obedience obedience({}, nullptr);
  obedience.OnClosed(base::Unavailable("down"));
  EXPECT_EQ(obedience.refusal(), "");
  obedience.OnClosed(
      rpc::WithReason(base::FailedPrecondition("not yours"), rpc::reason::kWrongCluster));
  EXPECT_EQ(obedience.refusal(), "WRONG_CLUSTER: not yours");
  obedience.OnClosed(base::Unavailable("down"));
  EXPECT_EQ(obedience.refusal(), "WRONG_CLUSTER: not yours");
  EXPECT_TRUE(obedience.Check(From(kCluster, 1, "one")).ok());
  EXPECT_EQ(obedience.refusal(), "");
}

class ObedientAgentTest : public AgentTest {
 protected:
  void Answer(const Registered& registered) {
    CoordinatorMessage message;
    *message.mutable_registered() = registered;
    coordinator_.Say(message);
  }
  // A new session; the coordinator has not answered yet.
  void OpenAgain() {
    coordinator_.Break("cut");
    loop_.Advance(seconds(6));
    ASSERT_TRUE(coordinator_.open);
  }
};

TEST_F(ObedientAgentTest, NothingOfADisobeyedSessionIsActedOn) {
  StartJob(1);
  OpenAgain();
  Answer(From(kCluster, 4, "one"));
  OpenAgain();
  EXPECT_EQ(coordinator_.heard.front().register_().term(), 4);
  Answer(From(kCluster, 3, "old"));
  EXPECT_TRUE(coordinator_.close_asked);
  EXPECT_FALSE(agent_->session().registered());
  // What the coordinator had sent already.
  coordinator_.Say(CommandMessage(megatrain::v1::Command::KILL, "kill/1"));
  coordinator_.Say(AssignMessage(1, /*epoch=*/9, /*first_slot=*/2));
  CoordinatorMessage ack;
  ack.mutable_report_ack()->set_seq(1'000'000);
  coordinator_.Say(ack);
  Answer(From(kCluster, 5, "late"));
  loop_.RunPosted();
  EXPECT_EQ(NumTold(0, megatrain::v1::AgentMessage::kExit), 0);
  EXPECT_TRUE(launcher_.terminated.empty());
  EXPECT_EQ(store_.records.size(), 1u);
  EXPECT_GT(agent_->session().outbox().num_reports(), 0)
      << "its acknowledgement counts for nothing";
  EXPECT_FALSE(agent_->session().registered());
  // The next session's coordinator is the right one.
  OpenAgain();
  Answer(From(kCluster, 4, "one"));
  EXPECT_TRUE(agent_->session().registered());
}

TEST_F(ObedientAgentTest, AnOrderBeforeTheAnswerToTheRegistrationIsNobodys) {
  StartJob(1);
  OpenAgain();
  coordinator_.Say(CommandMessage(megatrain::v1::Command::KILL, "kill/1"));
  EXPECT_EQ(NumTold(0, megatrain::v1::AgentMessage::kExit), 0);
  EXPECT_TRUE(launcher_.terminated.empty());
  Answer(From(kCluster, 4, "one"));
  EXPECT_TRUE(coordinator_.Heard(WorkerMessage::kCommandAck).empty()) << "nor is it answered later";
}

TEST_F(ObedientAgentTest, AnEpochWhoseEndIsAcknowledgedIsRefusedAndNotCalledAccepted) {
  StartJob(1);
  EndRank(0, {.code = 0});
  AckAll();
  ASSERT_EQ(agent_->num_allocations(), 0);
  Assign(1);
  const auto reply = coordinator_.Heard(WorkerMessage::kAssignmentReply).back().assignment_reply();
  EXPECT_FALSE(reply.accepted());
  EXPECT_THAT(reply.reason(), testing::HasSubstr("its ranks have ended"));
}

class ClusterFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/mt-cluster-file-XXXXXX";
    dir_ = mkdtemp(pattern);
    path_ = dir_ + "/cluster.bin";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
  std::string path_;
};

TEST_F(ClusterFileTest, KeepsWhatWasObeyed) {
  ClusterFile file(dir_);
  ASSERT_TRUE(file.Load().ok());
  EXPECT_EQ(*file.Load(), ClusterState{});
  const ClusterState state{.cluster_id = kCluster, .term = 1'048'583, .coordinator_uid = "one"};
  ASSERT_TRUE(file.Save(state).ok());
  EXPECT_EQ(*ClusterFile(dir_).Load(), state);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ClusterFileTest, EveryDamageIsSaidAndNeverTakenForKnowingNothing) {
  ClusterFile file(dir_);
  ASSERT_TRUE(file.Save({.cluster_id = kCluster, .term = 7, .coordinator_uid = "one"}).ok());
  const std::string whole = *base::ReadFile(path_);
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    const auto read = file.Load();
    ASSERT_FALSE(read.ok()) << size << " of " << whole.size() << " bytes";
    EXPECT_THAT(base::Message(read.status()), testing::HasSubstr("mt-worker join"));
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_FALSE(file.Load().ok()) << "byte " << at;
  }
}

TEST_F(ClusterFileTest, JoinsAnotherCluster) {
  ClusterFile file(dir_);
  ASSERT_TRUE(file.Save({.cluster_id = kOther, .term = 7, .coordinator_uid = "one"}).ok());
  EXPECT_FALSE(JoinCluster(dir_, "lab").ok());
  EXPECT_EQ(file.Load()->cluster_id, kOther);
  ASSERT_TRUE(JoinCluster(dir_, kCluster).ok());
  EXPECT_EQ(*file.Load(), (ClusterState{.cluster_id = kCluster, .term = 0, .coordinator_uid = ""}));
}

TEST(HealthTest, TheProbeSaysWhyTheWorkerIsNotReady) {
  const base::ManualClock clock;
  Health health(&clock);
  health.Turn(false, "WRONG_CLUSTER: not yours");
  EXPECT_EQ(health.Ready().status, 503);
  EXPECT_THAT(health.Ready().body, testing::HasSubstr("WRONG_CLUSTER: not yours"));
  health.Turn(true, "");
  EXPECT_EQ(health.Ready().status, 200);
}

}  // namespace
}  // namespace mt::node
