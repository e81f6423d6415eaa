// A wall clock that is wrong when the coordinator starts: nothing is deleted or ended for it.
#include "tests/daemon/core/core_fixture.h"
#include "tests/daemon/core/memory_store.h"

namespace mt::daemon {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// Its wall clock may jump; monotonic time goes on.
class WrongClock final : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return steady.Now(); }
  base::WallTime WallNow() const override { return steady.WallNow() + jump; }
  base::BootTime Boot() const override { return {.id = boot, .since = steady.Boot().since}; }
  base::ManualClock steady;
  std::string boot = "one";
  hours jump{0};
};

class WallClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    clock_.steady.Advance(hours(24 * 365));
    Start();
  }
  void Start() {
    core_.reset();
    core_ = std::make_unique<Core>(&store_, &clock_);
    ASSERT_TRUE(core_->Recover().ok());
    Turn(seconds(1));
  }
  void Turn(seconds by) {
    clock_.steady.Advance(by);
    core_->Tick();
    ASSERT_TRUE(core_->Commit().ok());
  }
  void Run(minutes time) {
    for (int i = 0; i < time.count(); ++i) Turn(seconds(60));
  }
  v1::SubmitResponse Submit(const std::string& name) {
    v1::SubmitRequest request;
    *request.mutable_spec() = TinyJob(name, 1, "resilience: {deadline: 1d}\n");
    request.set_request_id(name);
    v1::SubmitResponse response;
    EXPECT_TRUE(core_->api().jobs().Submit(request, "tester", &response).ok());
    Turn(seconds(1));
    return response;
  }
  int Rows(Table table) {
    int rows = 0;
    EXPECT_TRUE(store_
                    .ForEach(table,
                             [&rows](std::string_view, std::string_view) {
                               ++rows;
                               return OkStatus();
                             })
                    .ok());
    return rows;
  }

  // How often the clock was called implausible.
  int Said() {
    int said = 0;
    EXPECT_TRUE(store_
                    .ForEach(Table::kEvents,
                             [&said](std::string_view, std::string_view value) {
                               v1::Event event;
                               EXPECT_TRUE(event.ParseFromArray(value.data(),
                                                                static_cast<int>(value.size())));
                               said += event.type() == "WallClockImplausible";
                               return OkStatus();
                             })
                    .ok());
    return said;
  }
  // Of the only job.
  v1::JobState JobState() { return core_->ledger().Jobs().front()->job().state(); }

  MemoryStore store_;
  WrongClock clock_;
  std::unique_ptr<Core> core_;
};

TEST_F(WallClockTest, AMonthAheadAtAStartDeletesAndEndsNothing) {
  Submit("demo");
  Run(minutes(5));
  const int events = Rows(Table::kEvents);
  clock_.jump = hours(24 * 31);
  Start();
  Run(minutes(50));
  EXPECT_GE(Rows(Table::kEvents), events);
  EXPECT_EQ(Rows(Table::kRequests), 1);
  const v1::SubmitResponse again = Submit("demo");
  EXPECT_TRUE(again.existed()) << "what was acknowledged is not forgotten";
  EXPECT_EQ(again.job().state(), v1::QUEUED) << "nor its deadline over";
}

TEST_F(WallClockTest, ItIsSaidAndBelievedAfterAnHour) {
  Submit("demo");
  Run(minutes(5));
  clock_.jump = hours(24 * 31);
  clock_.boot = "two";
  Start();
  EXPECT_EQ(Said(), 1);
  Run(minutes(58));
  EXPECT_EQ(Rows(Table::kRequests), 1);
  Run(minutes(4));
  EXPECT_EQ(Rows(Table::kRequests), 0) << "the month has passed, it seems";
  EXPECT_EQ(JobState(), v1::QUEUED) << "but no deadline is cut by it";
  Start();
  EXPECT_EQ(Said(), 1) << "what is believed is recorded";
  EXPECT_EQ(JobState(), v1::QUEUED) << "nor at the next start";
  Run(minutes(22 * 60));
  EXPECT_EQ(JobState(), v1::QUEUED);
  Run(minutes(2 * 60));
  EXPECT_EQ(JobState(), v1::FAILED) << "a day after its submission";
}

TEST_F(WallClockTest, ItMayReturn) {
  Submit("demo");
  Run(minutes(5));
  clock_.jump = hours(24 * 31);
  Start();
  Run(minutes(10));
  clock_.jump = hours(0);
  Run(minutes(120));
  EXPECT_EQ(Rows(Table::kRequests), 1);
  Start();
  EXPECT_EQ(Said(), 1) << "once, for the start with the wrong clock";
}

TEST_F(WallClockTest, ARestartInTheDoubtKeepsIt) {
  Submit("demo");
  Run(minutes(5));
  clock_.jump = hours(24 * 31);
  Start();
  Run(minutes(40));
  Start();
  Run(minutes(40));
  EXPECT_EQ(Said(), 2);
  EXPECT_EQ(Rows(Table::kRequests), 1);
}

TEST_F(WallClockTest, AJumpWhileItRunsIsNotRecorded) {
  Submit("demo");
  Run(minutes(5));
  clock_.jump = hours(24 * 31);
  Run(minutes(120));
  EXPECT_EQ(Rows(Table::kRequests), 1);
  Start();
  EXPECT_EQ(Said(), 1) << "the store knows the time before";
  Run(minutes(30));
  EXPECT_EQ(Rows(Table::kRequests), 1);
}

TEST_F(WallClockTest, ALongAbsenceIsBelievedWhereTheMachineCountedIt) {
  Submit("demo");
  Run(minutes(5));
  core_.reset();
  clock_.steady.Advance(hours(24 * 8));
  Start();
  EXPECT_EQ(Said(), 0);
  EXPECT_EQ(Rows(Table::kRequests), 0) << "a week has passed";
  EXPECT_EQ(JobState(), v1::FAILED) << "and the deadline of a day";
}

TEST_F(WallClockTest, ALongAbsenceThatNothingConfirmsIsDoubtedForAnHour) {
  Submit("demo");
  Run(minutes(5));
  core_.reset();
  clock_.steady.Advance(hours(24 * 8));
  clock_.boot = "two";
  Start();
  EXPECT_EQ(Said(), 1);
  EXPECT_EQ(JobState(), v1::QUEUED);
  Run(minutes(62));
  EXPECT_EQ(Rows(Table::kRequests), 0);
}

TEST_F(WallClockTest, AClockThatIsBehindIsDoubtedToo) {
  Submit("demo");
  Run(minutes(12 * 60));
  clock_.jump = -hours(24 * 31);
  Start();
  EXPECT_EQ(Said(), 1);
  Run(minutes(11 * 60));
  EXPECT_EQ(JobState(), v1::QUEUED);
  Run(minutes(2 * 60));
  EXPECT_EQ(JobState(), v1::FAILED) << "its day counts over the restart";
}

TEST_F(WallClockTest, AStoreThatRecordedNoTimeHasItsNewestEvent) {
  Submit("demo");
  Run(minutes(5));
  core_.reset();
  ASSERT_TRUE(store_.Commit({{Table::kCluster, "self", std::nullopt, 0}}).ok());
  clock_.jump = hours(24 * 31);
  clock_.boot = "two";
  Start();
  EXPECT_EQ(Said(), 1);
  EXPECT_EQ(Rows(Table::kRequests), 1);
}

}  // namespace
}  // namespace mt::daemon
