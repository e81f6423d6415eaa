// An older copy of a store, started without a word (docs/design/control-plane.md#terms): it has the
// higher term where the other one was not started since the copy was made, and is found out by what
// workers remember.
#include "common/control/epoch.h"
#include "daemon/authority/authority.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

class OlderStoreTest : public CoreTest {
 protected:
  // A worker that has obeyed this cluster registers with the next start.
  v1::Register Returning(const Worker& worker, int64_t lowest_seq,
                         const std::vector<v1::HeldAllocation>& held = {}) {
    v1::Register hello;
    hello.set_node(worker.node);
    hello.set_worker_uid(worker.uid);
    hello.set_boot_id("b");
    hello.set_cluster_id(core_->ledger().Cluster().cluster_id());
    hello.set_term(core_->ledger().Cluster().term() - 1);
    hello.set_coordinator_uid("the start before");
    hello.set_lowest_seq(lowest_seq);
    hello.set_newest_seq(lowest_seq - 1);
    hello.add_slots()->set_device(v1::CPU_SLOT);
    for (const auto& allocation : held) *hello.add_allocations() = allocation;
    return hello;
  }
  bool Register(Worker* worker, const v1::Register& hello) {
    worker->link = std::make_shared<FakeLink>();
    worker->session = core_->sessions().Open(worker->link);
    v1::WorkerMessage message;
    *message.mutable_register_() = hello;
    core_->sessions().OnMessage(worker->session, message);
    Settle();
    return !worker->link->closed;
  }
};

TEST_F(OlderStoreTest, AcknowledgedReportsThatItDoesNotHaveSupersedeIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const int64_t acked = LastAck(worker);
  ASSERT_GT(acked, 0);
  StartCore();
  ASSERT_TRUE(Register(&worker, Returning(worker, acked + 1, {Held(job, v1::TRAINING)})));
  core_->sessions().OnClosed(worker.session);
  EXPECT_FALSE(Register(&worker, Returning(worker, acked + 2, {Held(job, v1::TRAINING)})));
  EXPECT_EQ(rpc::ReasonOf(worker.link->end), "COORDINATOR_SUPERSEDED");
  EXPECT_FALSE(core_->authority().GivesOrders());
  EXPECT_NE(core_->authority().Why().find("acknowledged up to number"), std::string::npos);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(OlderStoreTest, RanksOfAnEpochThatItDidNotGiveSupersedeIt) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job = StartRunning(worker, "demo", 1);
  StartCore();
  v1::Job later = job;
  later.set_epoch(job.epoch() + 1);
  worker.uid = base::NewUid();
  EXPECT_FALSE(Register(&worker, Returning(worker, 1, {Held(later, v1::TRAINING)})));
  EXPECT_FALSE(core_->authority().GivesOrders());
  EXPECT_NE(core_->authority().Why().find("epoch 1.2"), std::string::npos)
      << core_->authority().Why();
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
}

TEST_F(OlderStoreTest, AfterADeclaredRestoreBothAreExpected) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job = StartRunning(worker, "demo", 1);
  StartCore();
  v1::Job later = job;
  later.set_epoch(job.epoch() + 1);
  const v1::Register hello = Returning(worker, LastAck(worker) + 5, {Held(later, v1::TRAINING)});
  ASSERT_TRUE(core_->api().admin().DeclareRestore(v1::DeclareRestoreRequest(), "tester").ok());
  Settle();
  EXPECT_TRUE(Register(&worker, hello));
  EXPECT_TRUE(core_->authority().GivesOrders());
  EXPECT_EQ(Get(job.uid()).epoch(), later.epoch()) << "adopted";
}

// What waits in the store may run, so all nodes that it knows are heard first.
TEST_F(OlderStoreTest, NothingIsPlacedBeforeEveryNodeHasAnsweredAfterAStart) {
  Worker a = NewWorker("n1", 1);
  Worker b = NewWorker("n2", 1);
  StartCore();
  const v1::Job job = Submit(TinyJob("demo", 1));
  Connect(&a, 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  EXPECT_NE(Get(job.uid()).message().find("has just started"), std::string::npos)
      << Get(job.uid()).message();
  Connect(&b, 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  // One that stays silent is waited for as long as its lease lasts.
  StartCore();
  const v1::Job next = Submit(TinyJob("next", 1));
  Connect(&a, 1, {Held(Get(job.uid()), v1::SPAWNED)});
  Worker c = NewWorker("n3", 1);
  PassBeating(std::chrono::seconds(28), {&a, &c});
  EXPECT_EQ(Get(next.uid()).state(), v1::QUEUED);
  PassBeating(std::chrono::seconds(4), {&a, &c});
  EXPECT_EQ(Get(next.uid()).state(), v1::ADMITTED);
}

// Another cluster's ranks were there before the node joined this one.
TEST_F(OlderStoreTest, WhatANodeBringsAlongFromAnotherClusterIsNoEvidence) {
  Worker worker{.node = "n1", .uid = base::NewUid(), .link = nullptr};
  v1::Job other;
  other.set_uid("of-another-cluster");
  other.set_epoch(control::kEpochCounts + 4);
  v1::Register hello = Returning(worker, 900, {Held(other, v1::TRAINING)});
  hello.set_term(0);
  hello.clear_coordinator_uid();
  EXPECT_TRUE(Register(&worker, hello));
  StartCore();
  EXPECT_TRUE(Register(&worker, Returning(worker, 900, {Held(other, v1::TRAINING)})));
  EXPECT_TRUE(core_->authority().GivesOrders());
}

}  // namespace
}  // namespace mt::daemon
