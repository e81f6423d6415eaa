// How long things are kept: ended jobs, nodes that are gone, and what outlives both.
#include <absl/strings/escaping.h>

#include "tests/daemon/core/core_fixture.h"
#include "tests/daemon/core/memory_store.h"

namespace mt::daemon {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

class RetentionTest : public CoreTest {
 protected:
  void SetUp() override { Restart(); }
  void Restart() {
    core_.reset();
    core_ = std::make_unique<Core>(&disk_, &clock_);
    ASSERT_TRUE(core_->Recover().ok());
    Settle();
  }
  // A row of the table; empty: there is none.
  std::string Row(Table table, const std::string& key) {
    std::string found;
    EXPECT_TRUE(disk_
                    .ForEach(table,
                             [&](std::string_view row, std::string_view value) {
                               if (row == key) found = value;
                               return OkStatus();
                             })
                    .ok());
    return found;
  }
  v1::Job Ended(Worker& worker, const std::string& name) {
    const v1::Job job = StartRunning(worker, name, 1);
    Report(worker, EndedMessage(job, 10, true));
    Gone(worker, job);
    EXPECT_EQ(Get(job.uid()).state(), v1::SUCCEEDED);
    return job;
  }
  bool IsKnown(const std::string& uid) { return core_->ledger().FindJob(uid) != nullptr; }
  v1::StoredJob StoredRow(const std::string& uid) {
    v1::StoredJob stored;
    EXPECT_TRUE(stored.ParseFromString(Row(Table::kJobs, uid)));
    return stored;
  }

  MemoryStore disk_;
};

TEST_F(RetentionTest, ADeletedJobLeavesItsEpoch) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Ended(worker, "demo");
  ASSERT_TRUE(Delete(job.uid()).ok());
  const v1::StoredJob tombstone = StoredRow(job.uid());
  EXPECT_TRUE(tombstone.deleted());
  EXPECT_EQ(tombstone.job().epoch(), job.epoch());
  EXPECT_EQ(tombstone.job().state(), v1::SUCCEEDED);
}

TEST_F(RetentionTest, EndedJobsAreKeptNinetyDays) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Ended(worker, "demo");
  Pass(hours(24 * 90 - 2));
  EXPECT_TRUE(IsKnown(job.uid()));
  Pass(hours(4));
  EXPECT_FALSE(IsKnown(job.uid()));
  EXPECT_EQ(StoredRow(job.uid()).job().epoch(), job.epoch()) << "its tombstone stays";
}

TEST_F(RetentionTest, ARequestIsRememberedInFewBytesWhateverItsSize) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::UpdateJobRequest large;
  large.mutable_job()->set_uid(job.uid());
  large.set_request_id("large");
  for (int i = 0; i < 10'000; ++i) large.add_remove_labels(std::string(100, 'x'));
  v1::Job updated;
  ASSERT_TRUE(core_->api().jobs().Update(large, "tester", &updated).ok());
  Settle();
  v1::StoredRequest stored;
  ASSERT_TRUE(stored.ParseFromString(Row(Table::kRequests, "large")));
  EXPECT_LE(stored.ByteSizeLong(), 256u);
}

TEST_F(RetentionTest, ARequestOfAnOlderStoreIsStillTheSame) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD, "id");
  ASSERT_TRUE(pause.ok());
  v1::PauseRequest content;
  content.mutable_job()->set_uid(job.uid());
  content.set_mode(v1::PauseRequest::HOLD);
  v1::StoredRequest old;
  ASSERT_TRUE(old.ParseFromString(Row(Table::kRequests, "id")));
  // As versions before kept it.
  old.set_digest(absl::BytesToHexString(content.SerializeAsString()));
  ASSERT_TRUE(
      disk_.Commit({{Table::kRequests, "id", old.SerializeAsString(), core_->ledger().NowMicros()}})
          .ok());
  core_.reset();
  core_ = std::make_unique<Core>(&disk_, &clock_);
  ASSERT_TRUE(core_->Recover().ok());
  EXPECT_EQ(Pause(job.uid(), v1::PauseRequest::HOLD, "id")->name(), pause->name());
  EXPECT_EQ(rpc::ReasonOf(Pause(job.uid(), v1::PauseRequest::RELEASE, "id").status()),
            "REQUEST_ID_REUSED");
}

TEST_F(RetentionTest, TombstonesAreNeverDropped) {
  for (int i = 0; i < 1'100; ++i) {
    auto job = std::make_unique<v1::StoredJob>();
    job->mutable_job()->set_uid(fmt::format("u{:04}", i));
    job->mutable_job()->set_state(v1::CANCELLED);
    job->mutable_job()->set_epoch(7);
    job->mutable_job()->set_finished_us(i);
    job->mutable_job()->mutable_spec()->mutable_checkpoint()->set_directory("same");
    core_->ledger().AddJob(std::move(job));
    core_->ledger().EraseJob(fmt::format("u{:04}", i));
  }
  Pass(hours(24 * 365));
  Restart();
  for (const int i : {0, 500, 1'099}) {
    const v1::StoredJob tombstone = StoredRow(fmt::format("u{:04}", i));
    EXPECT_TRUE(tombstone.deleted());
    EXPECT_EQ(tombstone.job().epoch(), 7);
  }
  // What is told to agents is bounded: the newest thousand.
  EXPECT_TRUE(core_->ledger().EndedInDirectory("other").empty());
  EXPECT_EQ(core_->ledger().EndedInDirectory("same").size(), 1'000u);
  EXPECT_EQ(core_->ledger().EndedInDirectory("same").front(), "u0100");
  EXPECT_EQ(core_->ledger().EndedInDirectory("same").back(), "u1099");
}

TEST_F(RetentionTest, AnEndedJobStaysWhileANodeHoldsRanksOfIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Pass(seconds(31));
  ASSERT_TRUE(Kill(job.uid()).ok());
  // An operator deletes nothing here: the node is lost, so the job cannot end.
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  Pass(hours(24 * 200));
  EXPECT_TRUE(IsKnown(job.uid()));
  EXPECT_NE(core_->ledger().FindWorker("n1"), nullptr) << "nor does a node that holds ranks go";
}

TEST_F(RetentionTest, ManyOldJobsGoInRounds) {
  for (int i = 0; i < 250; ++i) {
    auto job = std::make_unique<v1::StoredJob>();
    job->mutable_job()->set_uid(fmt::format("u{:03}", i));
    job->mutable_job()->set_name(fmt::format("job-{}", i));
    job->mutable_job()->set_state(v1::CANCELLED);
    job->mutable_job()->set_finished_us(core_->ledger().NowMicros());
    core_->ledger().AddJob(std::move(job));
  }
  Settle();
  Pass(hours(24 * 91));
  EXPECT_EQ(core_->ledger().Jobs().size(), 150u);
  for (int i = 0; i < 2; ++i) Pass(seconds(1));
  EXPECT_TRUE(core_->ledger().Jobs().empty());
  EXPECT_EQ(Events("JobExpired").size(), 250u);
}

class GhostNodesTest : public RetentionTest {
 protected:
  Status DeleteNode(const std::string& node) {
    v1::DeleteNodeRequest request;
    request.set_node(node);
    request.set_reason("sold");
    const Status status = core_->api().nodes().Delete(request, "operator");
    Settle();
    return status;
  }
  bool IsNode(const std::string& node) { return core_->ledger().FindWorker(node) != nullptr; }
};

TEST_F(GhostNodesTest, GoAfterThirtyDays) {
  Worker worker = NewWorker("n1", 1);
  Worker alive = NewWorker("n2", 1);
  Pass(seconds(31));
  Connect(&alive, 1);
  for (int day = 0; day < 29; ++day) {
    Pass(hours(24));
    Connect(&alive, 1);
  }
  EXPECT_TRUE(IsNode("n1"));
  for (int day = 0; day < 3; ++day) {
    Pass(hours(24));
    Connect(&alive, 1);
  }
  EXPECT_FALSE(IsNode("n1"));
  EXPECT_TRUE(IsNode("n2"));
  ASSERT_EQ(Events("NodeDeleted").size(), 1u);
  Restart();
  EXPECT_FALSE(IsNode("n1"));
  Connect(&worker, 1);
  EXPECT_TRUE(IsNode("n1")) << "one that is alive after all is a new one";
}

TEST_F(GhostNodesTest, AnIdleNodeIsNoGhostAfterARestart) {
  Worker worker = NewWorker("n1", 1);
  // As if it had beaten all the time: the lease is renewed before anybody looks at it.
  clock_.Advance(hours(24 * 31));
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->set_beat(1);
  core_->sessions().OnMessage(worker.session, beat);
  Pass(std::chrono::milliseconds(300));
  ASSERT_FALSE(worker.link->closed);
  Restart();
  Pass(seconds(31));
  Pass(hours(2));
  EXPECT_TRUE(IsNode("n1")) << "it was heard two hours ago, though it never reported anything";
}

TEST_F(GhostNodesTest, AreDeletedByHandOnlyWhereTheyHoldNothing) {
  Worker worker = NewWorker("n1", 1);
  Worker other = NewWorker("n2", 1);
  EXPECT_EQ(rpc::ReasonOf(DeleteNode("n1")), "NODE_ALIVE");
  EXPECT_EQ(rpc::ReasonOf(DeleteNode("nobody")), "UNKNOWN_NODE");
  const v1::Job job = StartRunning(worker, "demo", 1);
  Pass(seconds(31));
  EXPECT_EQ(rpc::ReasonOf(DeleteNode("n1")), "NODE_IN_USE");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  ASSERT_TRUE(DeleteNode("n2").ok());
  EXPECT_FALSE(IsNode("n2"));
  ASSERT_EQ(Events("NodeDeleted").size(), 1u);
  EXPECT_EQ(Events("NodeDeleted")[0].reason(), "sold");
  v1::ListNodesResponse nodes;
  core_->api().nodes().List(&nodes);
  EXPECT_EQ(nodes.nodes_size(), 1);
  Restart();
  EXPECT_FALSE(IsNode("n2"));
}

}  // namespace
}  // namespace mt::daemon
