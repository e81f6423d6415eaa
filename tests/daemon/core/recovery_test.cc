// What survives: the store itself, a coordinator that starts again, a store that fails.
#include <csignal>
#include <fstream>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/core/core_fixture.h"
#include "tests/daemon/core/memory_store.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StoreTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_ = ::testing::TempDir() + "mt-store-" + base::RandomHex(6);
};

TEST_F(StoreTest, KeepsDeletesAndPurges) {
  {
    auto store = OpenOrMakeStore(folder_);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)
                    ->Commit({{Table::kJobs, "b", std::string("2\0x", 3), 10},
                              {Table::kJobs, "a", "1", 20},
                              {Table::kEvents, "1", "e", 5}})
                    .ok());
    ASSERT_TRUE(
        (*store)->Commit({{Table::kJobs, "c", "3", 1}, {Table::kJobs, "a", std::nullopt, 0}}).ok());
    ASSERT_TRUE((*store)->Purge(Table::kJobs, 10).ok());
  }
  auto store = SqliteStore::Open(folder_);
  ASSERT_TRUE(store.ok()) << store.status();
  std::string seen;
  ASSERT_TRUE((*store)
                  ->ForEach(Table::kJobs,
                            [&](std::string_view key, std::string_view value) {
                              seen += fmt::format("{}:{} ", key, value.size());
                              return OkStatus();
                            })
                  .ok());
  EXPECT_EQ(seen, "b:3 ");
  EXPECT_EQ(*(*store)->LastKey(Table::kEvents), "1");
  EXPECT_EQ(*(*store)->LastKey(Table::kWorkers), "");
}

TEST_F(StoreTest, OneCoordinatorPerFolder) {
  auto first = OpenOrMakeStore(folder_);
  ASSERT_TRUE(first.ok());
  const auto second = SqliteStore::Open(folder_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(base::Message(second.status()).find(std::to_string(getpid())), std::string::npos);
  first->reset();
  EXPECT_TRUE(SqliteStore::Open(folder_).ok());
}

TEST_F(StoreTest, DamageIsAClearError) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/coordinator.db") << std::string(8192, 'x');
  const auto garbage = SqliteStore::Open(folder_);
  EXPECT_EQ(garbage.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(base::Message(garbage.status()).find("coordinator.db"), std::string::npos);
}

TEST_F(StoreTest, DamageInTheMiddleIsFound) {
  {
    auto store = OpenOrMakeStore(folder_);
    std::vector<Write> rows;
    for (int i = 0; i < 200; ++i)
      rows.push_back({Table::kJobs, std::to_string(i), std::string(1'000, 'v'), i});
    ASSERT_TRUE((*store)->Commit(rows).ok());
  }
  std::fstream file(folder_ + "/coordinator.db", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(64 * 1'024);
  file << std::string(16 * 1'024, '\xa5');
  file.close();
  // Found by whoever reads it: the start does not check the whole file.
  auto store = SqliteStore::Open(folder_);
  ASSERT_TRUE(store.ok()) << store.status();
  const Status damaged = (*store)->ForEach(
      Table::kJobs, [](std::string_view, std::string_view) { return OkStatus(); });
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(base::Message(damaged).find("restore a backup"), std::string::npos);
}

TEST_F(StoreTest, AFileThatCannotBeOpenedIsNamed) {
  std::filesystem::create_directories(folder_ + "/coordinator.db");
  const auto refused = SqliteStore::Open(folder_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(base::Message(refused.status()).find("coordinator.db"), std::string::npos);
}

TEST_F(StoreTest, NewestFirstAndTheLastEventIsNeverPurged) {
  auto store = OpenOrMakeStore(folder_);
  ASSERT_TRUE((*store)
                  ->Commit({{Table::kEvents, "1", "a", 5},
                            {Table::kEvents, "2", "b", 6},
                            {Table::kEvents, "3", "c", 7}})
                  .ok());
  std::string seen;
  ASSERT_TRUE((*store)
                  ->ForEachNewest(Table::kEvents, "2",
                                  [&](std::string_view key, std::string_view value) {
                                    seen += fmt::format("{}{}", key, value);
                                    return true;
                                  })
                  .ok());
  EXPECT_EQ(seen, "3c2b");
  EXPECT_EQ(*(*store)->FirstKey(Table::kEvents), "1");
  ASSERT_TRUE((*store)->Purge(Table::kEvents, 100).ok());
  EXPECT_EQ(*(*store)->FirstKey(Table::kEvents), "3") << "numbers go on from it";
}

TEST_F(StoreTest, ANewerFileIsRefused) {
  { ASSERT_TRUE(OpenOrMakeStore(folder_).ok()); }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((folder_ + "/coordinator.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_EQ(SqliteStore::Open(folder_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StoreTest, ARowThatCannotBeReadIsNamed) {
  auto store = OpenOrMakeStore(folder_);
  ASSERT_TRUE(
      (*store)->Commit({{Table::kJobs, "some-uid", std::string("\xff\xff\xff", 3), 1}}).ok());
  base::ManualClock clock;
  Core core(store->get(), &clock);
  const Status status = core.Recover();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(base::Message(status).find("some-uid"), std::string::npos);
}

// A disk that fails from some moment on.
class FailingStore final : public Store {
 public:
  Status Commit(const std::vector<Write>&) override {
    ++commits;
    return failed ? base::Error(absl::StatusCode::kInternal, "disk I/O error") : OkStatus();
  }
  Status ForEach(Table, const Visitor&) override { return OkStatus(); }
  Status ForEachNewest(Table, const std::string&, const Taker&) override { return OkStatus(); }
  Status Purge(Table, int64_t) override { return OkStatus(); }
  StatusOr<std::string> LastKey(Table) override { return std::string(); }
  StatusOr<std::string> FirstKey(Table) override { return std::string(); }
  bool failed = false;
  int commits = 0;
};

TEST(StoreFailure, NothingIsAnsweredThatIsNotOnDisk) {
  FailingStore store;
  base::ManualClock clock;
  Core core(&store, &clock);
  ASSERT_TRUE(core.Recover().ok());
  store.failed = true;
  v1::SubmitRequest request;
  *request.mutable_spec() = TinyJob("demo", 1);
  request.set_request_id("r");
  v1::SubmitResponse response;
  ASSERT_TRUE(core.api().jobs().Submit(request, "tester", &response).ok());
  Status seen;
  core.ledger().AfterCommit([&](const Status& commit) { seen = commit; });
  EXPECT_EQ(core.Commit().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(seen.code(), absl::StatusCode::kInternal);
  store.failed = false;
  const int commits = store.commits;
  EXPECT_FALSE(core.Commit().ok()) << "memory and disk differ: it must end";
  EXPECT_EQ(store.commits, commits);
}

TEST_F(CoreTest, SubmittedJobSurvivesKillNineRightAfterTheReply) {
  core_.reset();
  store_.reset();
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    StartCore();
    v1::SubmitRequest request;
    *request.mutable_spec() = TinyJob("demo", 1);
    request.set_request_id("r");
    v1::SubmitResponse response;
    bool ok = core_->api().jobs().Submit(request, "tester", &response).ok();
    core_->ledger().AfterCommit([&](const Status& commit) {
      // The reply, then nothing more.
      ok = ok && commit.ok() && write(pipe_fds[1], response.job().uid().data(), 36) == 36;
      kill(getpid(), SIGKILL);
    });
    ok = core_->Commit().ok();
    _exit(ok ? 1 : 2);
  }
  std::string uid(36, ' ');
  ASSERT_EQ(read(pipe_fds[0], uid.data(), uid.size()), 36);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  StartCore();
  EXPECT_EQ(Get(uid).name(), "demo");
  EXPECT_EQ(Get(uid).state(), v1::QUEUED);
}

TEST_F(CoreTest, RunningJobsStayAndStepsAreSeenOnce) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 5));
  Pass(milliseconds(300));
  const int64_t acked = LastAck(worker);
  EXPECT_EQ(acked, worker.seq);

  StartCore();
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).last_step().step(), 5);
  v1::StreamMetricsRequest request;
  request.mutable_job()->set_uid(job.uid());
  const auto stream = core_->api().streams().WatchMetrics(request);
  ASSERT_TRUE(stream.ok());
  v1::HeldAllocation held;
  held.set_job_uid(job.uid());
  held.set_epoch(job.epoch());
  Connect(&worker, 1, {held});
  // The last report again (its acknowledgement was lost, say), then news.
  worker.seq = acked - 1;
  Report(worker, StepsMessage(job, 1, 5));
  Report(worker, StepsMessage(job, 5, 7));
  std::vector<int64_t> seen;
  for (auto taken = stream->subscription->Take(nullptr); taken.item.has_value();
       taken = stream->subscription->Take(nullptr)) {
    seen.push_back(taken.item->step->step());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  PassBeating(seconds(60), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(CoreTest, LeasesStartAnewAfterARestart) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  StartCore();
  Pass(seconds(29));
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::READY);
  Pass(seconds(2));
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::UNKNOWN);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(CoreTest, AnAssignmentThatWasLostIsSentAgain) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  ASSERT_EQ(job.state(), v1::ADMITTED);
  StartCore();
  Connect(&worker, 1);
  EXPECT_EQ(CountAssigns(worker), 0) << "it may report first that it had it, and what became of it";
  PassBeating(seconds(2), {&worker});
  EXPECT_EQ(CountAssigns(worker), 1);
  Accept(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
}

TEST_F(CoreTest, ACancelGoesOnAfterARestart) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto operation = Cancel(job.uid(), true);
  ASSERT_TRUE(operation.ok());
  StartCore();
  v1::HeldAllocation held;
  held.set_job_uid(job.uid());
  held.set_epoch(job.epoch());
  Connect(&worker, 1, {held});
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITH_SAVE), 1);
  Report(worker, EndedMessage(job, 4, false));
  Gone(worker, job);
  v1::GetOperationRequest request;
  request.set_name(operation->name());
  v1::Operation done;
  ASSERT_TRUE(core_->api().operations().Get(request, &done).ok());
  EXPECT_TRUE(done.done());
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

// Its wall clock may jump; monotonic time goes on.
class JumpyClock final : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return steady.Now(); }
  base::WallTime WallNow() const override { return steady.WallNow() + jump; }
  base::ManualClock steady;
  std::chrono::hours jump{0};
};

TEST(ClockJumps, DecideNothing) {
  MemoryStore store;
  JumpyClock clock;
  Core core(&store, &clock);
  ASSERT_TRUE(core.Recover().ok());
  const auto round = [&] {
    clock.steady.Advance(seconds(2));
    core.Tick();
    ASSERT_TRUE(core.Commit().ok());
  };
  const auto submit = [&](const std::string& name) {
    v1::SubmitRequest request;
    *request.mutable_spec() = TinyJob(name, 1, "resilience: {deadline: 1h}\n");
    request.set_request_id(name);
    v1::SubmitResponse response;
    EXPECT_TRUE(core.api().jobs().Submit(request, "tester", &response).ok());
    round();
    return response;
  };
  const v1::SubmitResponse first = submit("first");
  for (const int years : {20, -20}) {
    clock.jump = std::chrono::hours(24 * 365 * years);
    // Longer than it takes until old requests are looked for.
    clock.steady.Advance(std::chrono::minutes(20));
    round();
    EXPECT_TRUE(submit("first").existed()) << "what was acknowledged is not forgotten";
    EXPECT_EQ(submit("first").job().state(), v1::QUEUED) << "nor its deadline over";
  }
  const v1::SubmitResponse later = submit("later");
  EXPECT_GT(later.job().created_us(), first.job().created_us()) << "the queue keeps its order";
  clock.steady.Advance(std::chrono::minutes(21));
  round();
  EXPECT_EQ(submit("first").job().state(), v1::FAILED) << "an hour has passed";
}

TEST_F(CoreTest, RequestsAndOperationsAreKeptSevenDays) {
  const v1::Job job = Submit(TinyJob("demo", 1));
  const auto operation = Cancel(job.uid(), false);
  ASSERT_TRUE(operation->done());
  Pass(std::chrono::hours(24 * 7 - 2));
  v1::GetOperationRequest request;
  request.set_name(operation->name());
  v1::Operation out;
  EXPECT_TRUE(core_->api().operations().Get(request, &out).ok());
  Pass(std::chrono::hours(4));
  EXPECT_EQ(rpc::ReasonOf(core_->api().operations().Get(request, &out)), "UNKNOWN_OPERATION");
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED) << "jobs stay";
}

}  // namespace
}  // namespace mt::daemon
