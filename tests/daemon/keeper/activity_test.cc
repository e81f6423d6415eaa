// What ranks are busy with, as readers see it, and the copies of checkpoints in a second directory.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

class ActivityTest : public CoreTest {
 protected:
  static v1::WorkerMessage ActivityMessage(const v1::Job& job, v1::Activity::Kind kind,
                                           int64_t done) {
    v1::WorkerMessage message;
    message.mutable_job_report()->set_job_uid(job.uid());
    message.mutable_job_report()->set_epoch(job.epoch());
    v1::Activity* activity = message.mutable_job_report()->mutable_activity();
    activity->set_kind(kind);
    activity->set_done(done);
    return message;
  }
  // As agents send it: without a number.
  void Say(Worker& worker, const v1::WorkerMessage& message) {
    core_->sessions().OnMessage(worker.session, message);
  }
  std::shared_ptr<JobSubscription> Watch(const std::string& uid) {
    v1::GetJobRequest request;
    request.mutable_job()->set_uid(uid);
    const auto followed = core_->api().streams().WatchJob(request);
    EXPECT_TRUE(followed.ok()) << followed.status();
    return followed->subscription;
  }
  // "RUNNING 3, RUNNING -": the states with what is done, of what the reader has not taken.
  static std::string Taken(JobSubscription& subscription) {
    std::string text;
    for (;;) {
      const auto taken = subscription.Take([] {});
      if (!taken.item) return text;
      const v1::Job& job = **taken.item;
      text += fmt::format(
          "{}{} {}", text.empty() ? "" : ", ", v1::JobState_Name(job.state()),
          job.has_activity() ? std::to_string(job.activity().done()) : std::string("-"));
    }
  }
  static v1::WorkerMessage CopyMessage(const v1::Job& job, int64_t step, const std::string& error) {
    v1::WorkerMessage message;
    message.mutable_job_report()->set_job_uid(job.uid());
    message.mutable_job_report()->set_epoch(job.epoch());
    message.mutable_job_report()->mutable_second_copy()->set_step(step);
    message.mutable_job_report()->mutable_second_copy()->set_error(error);
    return message;
  }
};

TEST_F(ActivityTest, ReadersSeeItAndTheStoreDoesNot) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto reader = Watch(job.uid());
  EXPECT_EQ(Taken(*reader), "RUNNING -");
  Say(worker, ActivityMessage(job, v1::Activity::SAVING, 3));
  EXPECT_EQ(Taken(*reader), "RUNNING 3") << "without a commit";
  EXPECT_EQ(Get(job.uid()).activity().kind(), v1::Activity::SAVING);
  Say(worker, ActivityMessage(job, v1::Activity::SAVING, 7));
  v1::ListJobsRequest list;
  v1::ListJobsResponse listed;
  ASSERT_TRUE(core_->api().jobs().List(list, &listed).ok());
  EXPECT_EQ(listed.jobs(0).activity().done(), 7);
  EXPECT_EQ(Taken(*Watch(job.uid())), "RUNNING 7") << "a late reader";
  Say(worker, ActivityMessage(job, v1::Activity::NONE, 0));
  Say(worker, ActivityMessage(job, v1::Activity::NONE, 0));
  EXPECT_EQ(Taken(*reader), "RUNNING 7, RUNNING -");
  EXPECT_FALSE(Get(job.uid()).has_activity());
  // A change of the job beside it keeps it; a coordinator that starts anew knows nothing of it.
  Say(worker, ActivityMessage(job, v1::Activity::EVALUATING, 1));
  Report(worker, SavedMessage(job, 5));
  EXPECT_EQ(Taken(*reader), "RUNNING 1, RUNNING 1");
  StartCore();
  EXPECT_FALSE(Get(job.uid()).has_activity());
}

TEST_F(ActivityTest, ItEndsWithTheRanks) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto reader = Watch(job.uid());
  Say(worker, ActivityMessage(job, v1::Activity::SAVING, 3));
  Report(worker, EndedMessage(job, 10, true));
  Report(worker, RankMessage(job, 0, v1::EXITING));
  Gone(worker, job);
  const v1::Job now = Get(job.uid());
  EXPECT_FALSE(IsActive(now.state())) << v1::JobState_Name(now.state());
  EXPECT_FALSE(now.has_activity());
  // Of a closed epoch nothing is taken.
  Say(worker, ActivityMessage(job, v1::Activity::SAVING, 4));
  EXPECT_FALSE(Get(job.uid()).has_activity());
}

TEST_F(ActivityTest, OnlyTheNodeOfRankZeroIsHeard) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Worker other = NewWorker("n2", 1);
  Say(other, ActivityMessage(job, v1::Activity::SAVING, 3));
  EXPECT_FALSE(Get(job.uid()).has_activity());
}

TEST_F(ActivityTest, ACopyThatFailsIsSaidOnceAndStandsUntilOneSucceeds) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, CopyMessage(job, 5, ""));
  EXPECT_EQ(Get(job.uid()).second_copy().step(), 5);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  Report(worker, CopyMessage(job, 10, "No space left on device"));
  Report(worker, CopyMessage(job, 10, "No space left on device"));
  v1::Job now = Get(job.uid());
  EXPECT_EQ(ConditionsOf(now), "SecondCopyStale");
  EXPECT_EQ(now.conditions(0).message(),
            "step 10 was not copied to the second directory: No space left on device");
  EXPECT_EQ(now.second_copy().step(), 5) << "the newest one that is there";
  EXPECT_EQ(now.second_copy().error(), "No space left on device");
  ASSERT_EQ(Events("SecondCopyFailed").size(), 1U);
  EXPECT_EQ(Events("SecondCopyFailed")[0].step(), 10);
  Report(worker, CopyMessage(job, 15, ""));
  now = Get(job.uid());
  EXPECT_EQ(ConditionsOf(now), "");
  EXPECT_EQ(now.second_copy().step(), 15);
  EXPECT_EQ(now.second_copy().error(), "");
  Report(worker, CopyMessage(job, 20, "No space left on device"));
  EXPECT_EQ(Events("SecondCopyFailed").size(), 2U) << "after a success it is news";
}

}  // namespace
}  // namespace mt::daemon
