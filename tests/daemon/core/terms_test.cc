// Terms on the coordinator's side: identity and term of a store, workers that have obeyed another
// coordinator, and a declared restore (docs/design/control-plane.md#terms).
#include <gmock/gmock.h>

#include "common/control/numbers.h"
#include "daemon/authority/authority.h"
#include "daemon/hub/worker_hub.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using control::TermOfEpoch;

class TermsTest : public CoreTest {
 protected:
  // What a worker knows of its cluster.
  struct Known {
    std::string cluster;
    int64_t term = 0;
    std::string coordinator;
  };
  // `worker` registers (again) with two slots; true where it was accepted.
  bool Register(Worker* worker, const Known& known,
                const std::vector<v1::HeldAllocation>& held = {}) {
    worker->link = std::make_shared<FakeLink>();
    worker->session = core_->sessions().Open(worker->link);
    v1::WorkerMessage message;
    v1::Register* hello = message.mutable_register_();
    hello->set_node(worker->node);
    hello->set_worker_uid(worker->uid);
    hello->set_boot_id("b");
    hello->set_cluster_id(known.cluster);
    hello->set_term(known.term);
    hello->set_coordinator_uid(known.coordinator);
    for (int i = 0; i < 2; ++i) {
      hello->add_slots()->set_index(i);
      hello->mutable_slots(i)->set_device(v1::CPU_SLOT);
    }
    for (const auto& allocation : held) *hello->add_allocations() = allocation;
    core_->sessions().OnMessage(worker->session, message);
    Settle();
    return !worker->link->closed;
  }
  // As this coordinator's workers know it.
  Known Own() {
    return {core_->ledger().Cluster().cluster_id(), core_->ledger().Cluster().term(), core_->uid()};
  }
  std::string Reason(const Worker& worker) { return rpc::ReasonOf(worker.link->end); }
  int Orders(const Worker& worker) {
    int count = 0;
    for (const auto& message : worker.link->received)
      count += message.has_assign() || message.has_command();
    return count;
  }
  std::string Row(const v1::Job& job) {
    std::string text = core_->ledger().FindJob(job.uid())->SerializeAsString();
    for (const v1::StoredAllocation* allocation : core_->ledger().Allocations())
      text += allocation->SerializeAsString();
    return text;
  }
  Status DeclareRestore() {
    v1::DeclareRestoreRequest request;
    request.set_reason("disk");
    const Status status = core_->api().admin().DeclareRestore(request, "tester");
    Settle();
    return status;
  }
  Worker MakeWorker(const std::string& node) {
    return {.node = node, .uid = base::NewUid(), .link = nullptr};
  }
};

TEST_F(TermsTest, AStoreKeepsItsIdentityAndRaisesItsTermAtEveryStart) {
  const v1::StoredCluster first = core_->ledger().Cluster();
  EXPECT_EQ(first.cluster_id().size(), 36u);
  EXPECT_EQ(first.cluster_key().size(), 32u);
  EXPECT_EQ(first.term(), 1);
  StartCore();
  const v1::StoredCluster second = core_->ledger().Cluster();
  EXPECT_EQ(second.cluster_id(), first.cluster_id());
  EXPECT_EQ(second.cluster_key(), first.cluster_key());
  EXPECT_EQ(second.term(), 2);
}

TEST_F(TermsTest, AWorkerHearsClusterTermAndStart) {
  Worker worker = MakeWorker("node-a");
  ASSERT_TRUE(Register(&worker, {}));
  const v1::Registered& registered = worker.link->received.front().registered();
  EXPECT_EQ(registered.cluster_id(), Own().cluster);
  EXPECT_EQ(registered.term(), 1);
  EXPECT_EQ(registered.coordinator_uid(), core_->uid());
}

TEST_F(TermsTest, EpochsAreOfTheTermThatGaveThem) {
  Worker worker = NewWorker("node-a", 2);
  const v1::Job first = Submit(TinyJob("one", 2));
  EXPECT_EQ(control::EpochText(first.epoch()), "1.1");
  StartCore();
  Connect(&worker, 2);
  Accept(worker, first, /*accepted=*/false);
  EXPECT_EQ(control::EpochText(Get(first.uid()).epoch()), "2.1");
}

TEST_F(TermsTest, ATermWithoutEpochsIsSaidWhereTheJobWaits) {
  Worker worker = NewWorker("node-a", 2);
  const v1::Job job = Submit(TinyJob("one", 2));
  core_->ledger().FindJob(job.uid())->mutable_job()->set_epoch(job.epoch() + control::kEpochCounts -
                                                               2);
  core_->ledger().EraseAllocation({job.uid(), job.epoch(), "node-a"});
  PassBeating(control::kPlacementAnswer, {&worker});
  const v1::Job waits = Get(job.uid());
  EXPECT_EQ(waits.state(), v1::QUEUED);
  EXPECT_EQ(TermOfEpoch(waits.epoch()), 1) << "never a wrap into another term";
  EXPECT_THAT(waits.message(), testing::HasSubstr("restart the coordinator"));
}

TEST_F(TermsTest, AWorkerOfAnotherClusterIsRefusedAndNothingOfItIsTouched) {
  Worker worker = NewWorker("node-a", 2);
  const v1::Job job = StartRunning(worker, "one", 2);
  const std::string before = Row(job);
  Known other = Own();
  other.cluster = base::NewUid();
  other.term = 7;
  Worker stranger = MakeWorker("node-a");
  v1::HeldAllocation held = Held(job, v1::TRAINING, {0, 1});
  held.set_job_uid(base::NewUid());
  EXPECT_FALSE(Register(&stranger, other, {held}));
  Pass(std::chrono::milliseconds(300));
  EXPECT_EQ(Reason(stranger), rpc::reason::kWrongCluster);
  EXPECT_TRUE(stranger.link->received.empty());
  EXPECT_EQ(Row(job), before);
  EXPECT_TRUE(core_->authority().GivesOrders()) << "its term is another cluster's";
  EXPECT_FALSE(Register(&stranger, other, {held}));
  ASSERT_EQ(Events("WorkerRefused").size(), 1u) << "said once, however often it tries";
  EXPECT_THAT(Events("WorkerRefused")[0].message(), testing::HasSubstr("WRONG_CLUSTER"));
}

TEST_F(TermsTest, AWorkerThatObeysAHigherTermSupersedes) {
  Worker worker = NewWorker("node-a", 2);
  const v1::Job job = StartRunning(worker, "one", 2);
  const std::string before = Row(job);
  Known newer = Own();
  newer.term = 2;
  newer.coordinator = "another";
  Worker other = MakeWorker("node-b");
  v1::HeldAllocation held = Held(job, v1::TRAINING, {0, 1});
  held.set_job_uid(base::NewUid());
  EXPECT_FALSE(Register(&other, newer, {held}));
  EXPECT_EQ(Reason(other), rpc::reason::kTermSuperseded);
  EXPECT_TRUE(core_->authority().IsSuperseded());
  EXPECT_EQ(Events("CoordinatorSuperseded").size(), 1u);
  EXPECT_EQ(Events("WorkerRefused").size(), 1u);
  EXPECT_EQ(Row(job), before);
  v1::ServerInfo info;
  core_->api().admin().Describe(&info);
  EXPECT_THAT(info.no_orders(), testing::HasSubstr("mtctl admin restore"));
}

TEST_F(TermsTest, AnEqualTermOfAnotherStartSupersedesAndTheOwnOneDoesNot) {
  Worker worker = MakeWorker("node-a");
  EXPECT_TRUE(Register(&worker, Own()));
  Known joined = Own();
  joined.coordinator.clear();
  EXPECT_TRUE(Register(&worker, joined));
  Known lower = Own();
  lower.term = 0;
  lower.coordinator = "of before";
  EXPECT_TRUE(Register(&worker, lower));
  EXPECT_FALSE(core_->authority().IsSuperseded());
  Known copy = Own();
  copy.coordinator = "another";
  EXPECT_FALSE(Register(&worker, copy));
  EXPECT_EQ(Reason(worker), rpc::reason::kTermSuperseded);
  EXPECT_TRUE(core_->authority().IsSuperseded());
}

TEST_F(TermsTest, ASupersededCoordinatorTakesNoReportsAndGivesNoOrders) {
  Worker worker = NewWorker("node-a", 2);
  Worker idle = NewWorker("node-b", 2);
  const v1::Job job = StartRunning(worker, "one", 2);
  // It waits for a retry, whose time comes.
  const v1::Job waits = Submit(TinyJob("two", 2));
  Accept(idle, Get(waits.uid()), /*accepted=*/false);
  Accept(idle, Get(waits.uid()), /*accepted=*/false);
  ASSERT_EQ(Get(waits.uid()).state(), v1::QUEUED);
  Pass(std::chrono::milliseconds(300));
  const size_t heard = worker.link->received.size();
  // Taken in the very round in which it learns of the other one.
  v1::WorkerMessage steps = StepsMessage(job, 1, 3);
  steps.set_seq(++worker.seq);
  core_->sessions().OnMessage(worker.session, steps);
  core_->authority().Supersede("superseded: a test says so");
  Pass(std::chrono::milliseconds(300));
  // The job would end by these.
  Report(worker, EndedMessage(job, 10, /*completed=*/true));
  Gone(worker, job);
  Pass(std::chrono::milliseconds(300));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(worker.link->received.size(), heard) << "no order, and no acknowledgement";
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->set_beat(5);
  core_->sessions().OnMessage(worker.session, beat);
  Pass(std::chrono::seconds(120));
  EXPECT_EQ(Get(waits.uid()).state(), v1::QUEUED) << "although slots are free";
  EXPECT_EQ(worker.link->received.back().heartbeat_ack().beat(), 5) << "heartbeats are answered";
  EXPECT_TRUE(Events("NodeLost").empty()) << "and no verdict is given";
  Worker late = MakeWorker("node-c");
  EXPECT_FALSE(Register(&late, {}));
  EXPECT_EQ(Reason(late), rpc::reason::kCoordinatorSuperseded);
  ASSERT_TRUE(DeclareRestore().ok());
  Pass(std::chrono::seconds(1));
  EXPECT_TRUE(Events("NodeLost").empty()) << "what nobody counted is not counted afterwards";
}

TEST_F(TermsTest, ASupersededCoordinatorLetsNoLimitRunOut) {
  Worker worker = NewWorker("node-a", 2);
  const v1::Job asked = Submit(TinyJob("one", 2));
  ASSERT_EQ(asked.state(), v1::ADMITTED);
  core_->authority().Supersede("superseded: a test says so");
  Pass(2 * control::kPlacementAnswer);
  EXPECT_EQ(Get(asked.uid()).state(), v1::ADMITTED);
}

TEST_F(TermsTest, AnOrderThatSomePartGivesAllTheSameStopsAtTheHub) {
  Worker worker = NewWorker("node-a", 2);
  WorkerHub hub(&core_->ledger(), &core_->authority());
  const auto link = std::make_shared<FakeLink>();
  hub.Bind(hub.Open(link), "node-a");
  v1::CoordinatorMessage order;
  order.mutable_command()->set_verb(v1::Command::KILL);
  ASSERT_TRUE(hub.Send("node-a", order));
  Settle();
  ASSERT_EQ(link->received.size(), 1U);
  core_->authority().Supersede("superseded: a test says so");
  hub.Send("node-a", order);
  order.mutable_assign()->set_epoch(1);
  hub.Send("node-a", order);
  Settle();
  EXPECT_EQ(link->received.size(), 1U);
}

TEST_F(TermsTest, AFenceThatAnotherCoordinatorRaisedSupersedes) {
  Worker worker = NewWorker("node-a", 2);
  const v1::Job job = StartRunning(worker, "one", 2);
  v1::WorkerMessage fenced = RankMessage(job, 0, v1::FAULTED);
  // The rank of an older epoch meets the fence of a newer one that this coordinator gave.
  fenced.mutable_rank_report()->set_epoch(job.epoch() - 1);
  fenced.mutable_rank_report()->set_fence_epoch(job.epoch());
  Report(worker, fenced);
  EXPECT_FALSE(core_->authority().IsSuperseded());
  Pass(std::chrono::milliseconds(300));  // until the report is acknowledged
  StartCore();
  Connect(&worker, 2, {Held(job, v1::TRAINING, {0, 1})});
  fenced.mutable_rank_report()->set_fence_epoch(job.epoch() + 1);
  Report(worker, fenced);
  EXPECT_FALSE(core_->authority().IsSuperseded()) << "of an earlier term than this start's";
  fenced.mutable_rank_report()->set_epoch(job.epoch());
  fenced.mutable_rank_report()->set_fence_epoch(job.epoch() + 2 * control::kEpochCounts);
  Report(worker, fenced);
  EXPECT_TRUE(core_->authority().IsSuperseded());
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING) << "its fault is not taken";
}

TEST_F(TermsTest, AFenceOfItsOwnTermThatItDidNotGiveSupersedes) {
  Worker worker = NewWorker("node-a", 2);
  const v1::Job job = StartRunning(worker, "one", 2);
  v1::WorkerMessage fenced = RankMessage(job, 0, v1::FAULTED);
  fenced.mutable_rank_report()->set_fence_epoch(job.epoch() + 1);
  Report(worker, fenced);
  EXPECT_TRUE(core_->authority().IsSuperseded());
}

TEST_F(TermsTest, ItStaysSupersededOverStartsUntilARestoreIsDeclared) {
  Worker worker = MakeWorker("node-a");
  Known newer = Own();
  newer.term = 3;
  newer.coordinator = "another";
  ASSERT_FALSE(Register(&worker, newer));
  for (int start = 0; start < 4; ++start) {
    StartCore();
    EXPECT_TRUE(core_->authority().IsSuperseded()) << "term " << core_->ledger().Cluster().term();
  }
  const int64_t term = core_->ledger().Cluster().term();
  ASSERT_TRUE(DeclareRestore().ok());
  EXPECT_TRUE(core_->authority().GivesOrders());
  EXPECT_EQ(core_->ledger().Cluster().term(), term + control::kRestoreTerms);
  EXPECT_TRUE(Register(&worker, newer));
  ASSERT_EQ(Events("RestoreDeclared").size(), 1u);
  EXPECT_EQ(Events("RestoreDeclared")[0].reason(), "disk");
  StartCore();
  EXPECT_TRUE(core_->authority().GivesOrders());
}

// `mt-coordinator restore` writes the new term into a store that may have been superseded.
TEST_F(TermsTest, ARestoreDeclaredInTheStoreEndsASupersession) {
  v1::StoredCluster& cluster = core_->ledger().Cluster();
  cluster.set_superseded("superseded: of before");
  cluster.set_superseded_by(9);
  cluster.set_restored_term(9);
  core_->ledger().MarkCluster();
  Settle();
  StartCore();
  EXPECT_TRUE(core_->authority().IsSuperseded()) << "the restore is not newer";
  core_->ledger().Cluster().set_restored_term(10);
  core_->ledger().MarkCluster();
  Settle();
  StartCore();
  EXPECT_FALSE(core_->authority().IsSuperseded());
}

TEST_F(TermsTest, WorkersRegisterAgainAfterADeclaredRestore) {
  Worker worker = NewWorker("node-a", 2);
  Pass(std::chrono::milliseconds(300));
  ASSERT_TRUE(DeclareRestore().ok());
  EXPECT_TRUE(worker.link->closed);
  ASSERT_TRUE(Register(&worker, {Own().cluster, 1, core_->uid()}));
  EXPECT_EQ(worker.link->received.front().registered().term(), 1 + control::kRestoreTerms);
}

TEST_F(TermsTest, NothingIsPlacedUntilEveryNodeOfTheRestoredStoreHasAnswered) {
  Worker a = NewWorker("node-a", 2);
  Worker b = NewWorker("node-b", 2);
  Worker c = NewWorker("node-c", 2);
  ASSERT_TRUE(DeclareRestore().ok());
  ASSERT_TRUE(Register(&a, {}));
  const v1::Job job = Submit(TinyJob("one", 2));
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "Waiting");
  EXPECT_THAT(Get(job.uid()).message(),
              testing::AllOf(testing::HasSubstr("node-b"), testing::HasSubstr("node-c"),
                             testing::Not(testing::HasSubstr("node-a"))));
  // Over a start of the coordinator, too.
  StartCore();
  ASSERT_TRUE(Register(&a, {}));
  ASSERT_TRUE(Register(&b, {}));
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  EXPECT_THAT(Get(job.uid()).message(), testing::HasSubstr("node node-c has"));
  PassBeating(std::chrono::seconds(40), {&a, &b});
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED) << "silence is no answer";
  ASSERT_TRUE(core_->sessions().DeclareDead("node-c", {}).ok());
  Settle();
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Events("RestoreSettled").size(), 1u);
  StartCore();
  ASSERT_TRUE(Register(&a, {}));
  ASSERT_TRUE(Register(&b, {}));
  Worker d = NewWorker("node-d", 2);
  const v1::Job next = Submit(TinyJob("two", 2));
  EXPECT_EQ(Get(next.uid()).state(), v1::ADMITTED) << "it is settled for good";
}

TEST_F(TermsTest, ARestoreIsSettledAfterItsTime) {
  Worker a = NewWorker("node-a", 2);
  Worker b = NewWorker("node-b", 2);
  ASSERT_TRUE(DeclareRestore().ok());
  ASSERT_TRUE(Register(&a, {}));
  const v1::Job job = Submit(TinyJob("one", 2));
  PassBeating(control::kOrphanGrace + control::kRestoreMargin - std::chrono::seconds(2), {&a});
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  PassBeating(std::chrono::seconds(4), {&a});
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_THAT(Events("RestoreSettled")[0].message(), testing::HasSubstr("node-b"));
}

TEST_F(TermsTest, APlacementOfTheRestoredStoreIsNotOrderedAgain) {
  Worker a = NewWorker("node-a", 2);
  Worker b = NewWorker("node-b", 2);
  const v1::Job job = Submit(TinyJob("one", 2));
  ASSERT_EQ(job.state(), v1::ADMITTED);
  Worker& host = CountAssigns(a) > 0 ? a : b;
  Worker& other = CountAssigns(a) > 0 ? b : a;
  ASSERT_TRUE(DeclareRestore().ok());
  Pass(control::kPlacementAnswer + std::chrono::seconds(1));
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED) << "its agent may have taken it since the backup";
  ASSERT_TRUE(Register(&host, {}));
  PassBeating(std::chrono::seconds(2), {&host});
  EXPECT_EQ(CountAssigns(host), 0);
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  ASSERT_TRUE(Register(&other, {}));
  const v1::Job placed = Get(job.uid());
  EXPECT_EQ(placed.state(), v1::ADMITTED);
  EXPECT_EQ(TermOfEpoch(placed.epoch()), 1 + control::kRestoreTerms);
}

TEST_F(TermsTest, APlacementOnANodeThatIsGivenUpIsMadeAnew) {
  Worker a = NewWorker("node-a", 2);
  Worker b = NewWorker("node-b", 2);
  const v1::Job job = Submit(TinyJob("one", 2));
  Worker& host = CountAssigns(a) > 0 ? a : b;
  Worker& other = CountAssigns(a) > 0 ? b : a;
  ASSERT_TRUE(DeclareRestore().ok());
  ASSERT_TRUE(Register(&other, {}));
  PassBeating(std::chrono::seconds(40), {&other});
  ASSERT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  ASSERT_TRUE(core_->sessions().DeclareDead(host.node, {}).ok());
  Settle();
  const v1::Job placed = Get(job.uid());
  EXPECT_EQ(placed.state(), v1::ADMITTED) << placed.message();
  EXPECT_GT(placed.epoch(), job.epoch());
  EXPECT_EQ(CountAssigns(other), 1);
}

}  // namespace
}  // namespace mt::daemon
