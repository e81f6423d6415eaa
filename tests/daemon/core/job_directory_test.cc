// Which directory of checkpoints a job gets that names none: its own namespace's, whatever jobs of
// other namespaces are called, and the one of an earlier version where that is its own.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

class JobDirectoryTest : public CoreTest {
 protected:
  static v1::JobSpec Job(const std::string& job_namespace, const std::string& name,
                         const std::string& directory = "") {
    v1::JobSpec spec = TinyJob(name, 1);
    spec.set_namespace_(job_namespace);
    if (!directory.empty()) spec.mutable_checkpoint()->set_directory(directory);
    return spec;
  }
  // The directory of a job that is submitted so; it is ended at once, so that the name is free.
  std::string DirectoryOf(const v1::JobSpec& spec) {
    const auto response = TrySubmit(spec);
    if (!response.ok()) return base::Message(response.status());
    const std::string& uid = response->job().uid();
    EXPECT_TRUE(Cancel(uid, false).ok());
    return response->job().spec().checkpoint().directory();
  }
  std::string Directory(const std::string& job_namespace, const std::string& name) {
    return DirectoryOf(Job(job_namespace, name));
  }
  // The row of an ended job that an earlier version took: its directory was its name, or was given.
  std::string AddOlder(const std::string& job_namespace, const std::string& name,
                       const std::string& directory, int64_t saved_step = 10) {
    auto stored = std::make_unique<v1::StoredJob>();
    v1::Job* job = stored->mutable_job();
    job->set_uid(base::NewUid());
    job->set_name(name);
    job->set_namespace_(job_namespace);
    job->set_state(v1::FAILED);
    job->set_epoch(control::NextEpoch(0, 1));
    job->set_created_us(core_->ledger().NextCreatedMicros());
    clock_.Advance(std::chrono::seconds(1));
    job->set_finished_us(core_->ledger().NowMicros());
    *job->mutable_spec() = Job(job_namespace, name, directory);
    if (saved_step > 0) job->mutable_last_checkpoint()->set_step(saved_step);
    const std::string uid = job->uid();
    core_->ledger().AddJob(std::move(stored));
    Settle();
    return uid;
  }
};

TEST_F(JobDirectoryTest, AJobThatSavesNothingChoosesNothingForTheNext) {
  v1::JobSpec bench = Job("team-a", "demo");
  bench.set_kind(v1::JobSpec::KIND_BENCH);
  bench.mutable_training()->clear_train_iters();
  EXPECT_EQ(DirectoryOf(bench), "none");
  EXPECT_EQ(Directory("team-a", "demo"), "team-a/demo");
  EXPECT_EQ(DirectoryOf(Job("team-b", "demo", "none")), "none");
  EXPECT_EQ(Directory("none", "demo"), "none/demo");
}

TEST_F(JobDirectoryTest, JobsOfOneNameInTwoNamespacesHaveTwo) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job a = Submit(Job("team-a", "demo"));
  const v1::Job b = Submit(Job("team-b", "demo"));
  EXPECT_EQ(a.spec().checkpoint().directory(), "team-a/demo");
  EXPECT_EQ(b.spec().checkpoint().directory(), "team-b/demo");
  std::vector<std::string> told;
  for (const auto& message : worker.link->received) {
    if (message.has_assign()) told.push_back(message.assign().spec().checkpoint().directory());
  }
  EXPECT_EQ(told, (std::vector<std::string>{"team-a/demo", "team-b/demo"}));
  EXPECT_EQ(Directory("default", "demo"), "default/demo");
  StartCore();
  EXPECT_EQ(Get(a.uid()).spec().checkpoint().directory(), "team-a/demo") << "it is stored";
}

TEST_F(JobDirectoryTest, OneThatIsNamedStays) {
  EXPECT_EQ(DirectoryOf(Job("team-a", "demo", "shared/demo")), "shared/demo");
  EXPECT_EQ(DirectoryOf(Job("team-b", "other", "shared/demo")), "shared/demo");
  EXPECT_EQ(DirectoryOf(Job("team-a", "demo", "demo")), "demo");
  EXPECT_EQ(DirectoryOf(Job("team-a", "demo", "none")), "none");
  EXPECT_EQ(Directory("team-a", "demo"), "team-a/demo") << "what was named once is no default";
  EXPECT_EQ(Directory("team-a", "none"), "team-a/none");
}

TEST_F(JobDirectoryTest, AnUpdateLeavesIt) {
  const v1::Job job = Submit(Job("team-a", "demo"));
  v1::UpdateJobRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.mutable_changes()->set_priority(3);
  v1::Job updated;
  ASSERT_TRUE(core_->api().jobs().Update(request, "tester", &updated).ok());
  EXPECT_EQ(updated.spec().checkpoint().directory(), "team-a/demo");
}

TEST_F(JobDirectoryTest, ThatOfAnEarlierVersionIsWhoseJobMadeIt) {
  const std::string first = AddOlder("team-a", "demo", "demo");
  const std::string second = AddOlder("team-b", "demo", "demo");  // went on with team-a's
  const auto expect = [&](const std::string& when) {
    EXPECT_EQ(Directory("team-a", "demo"), "demo") << when;
    EXPECT_EQ(Directory("team-b", "demo"), "team-b/demo") << when;
    EXPECT_EQ(Directory("team-c", "demo"), "team-c/demo") << when;
    EXPECT_EQ(Directory("team-a", "other"), "team-a/other") << when;
  };
  expect("the store tells");
  StartCore();
  expect("from the disk");
  ASSERT_TRUE(Delete(first).ok());
  StartCore();
  expect("the tombstone tells");
}

TEST_F(JobDirectoryTest, TombstonesAloneTell) {
  const std::string first = AddOlder("team-a", "demo", "demo");
  const std::string second = AddOlder("team-b", "demo", "demo");
  ASSERT_TRUE(Delete(first).ok());
  ASSERT_TRUE(Delete(second).ok());
  StartCore();
  EXPECT_EQ(Directory("team-b", "demo"), "team-b/demo");
  EXPECT_EQ(Directory("team-a", "demo"), "demo");
}

TEST_F(JobDirectoryTest, AChoiceOutlivesItsJobs) {
  const std::string empty = AddOlder("team-a", "demo", "demo", /*saved_step=*/0);
  const v1::Job chosen = Submit(Job("team-a", "demo"));
  EXPECT_EQ(chosen.spec().checkpoint().directory(), "team-a/demo");
  ASSERT_TRUE(Cancel(chosen.uid(), false).ok());
  // Of a tombstone nobody knows whether its job has saved.
  ASSERT_TRUE(Delete(empty).ok());
  ASSERT_TRUE(Delete(chosen.uid()).ok());
  StartCore();
  EXPECT_NE(core_->ledger().FindDeleted(empty)->job().created_us(), 0);
  EXPECT_EQ(Directory("team-a", "demo"), "team-a/demo");
}

TEST_F(JobDirectoryTest, WhoSavedNothingHasMadeNothing) {
  const std::string empty = AddOlder("team-a", "demo", "demo", /*saved_step=*/0);
  AddOlder("team-b", "demo", "demo");
  EXPECT_EQ(Directory("team-a", "demo"), "team-a/demo");
  EXPECT_EQ(Directory("team-b", "demo"), "demo");
  ASSERT_TRUE(Delete(empty).ok());
  EXPECT_EQ(Directory("team-a", "demo"), "team-a/demo") << "what was chosen once stays chosen";
}

TEST_F(JobDirectoryTest, ANamespaceCalledLikeADirectoryIsRefused) {
  AddOlder("team-a", "demo", "demo");
  const auto refused = TrySubmit(Job("demo", "mine"));
  EXPECT_EQ(rpc::ReasonOf(refused.status()), "INVALID_SPEC");
  EXPECT_EQ(base::Message(refused.status()),
            "namespace: 'demo' is the directory of checkpoints of job team-a/demo, and demo/mine "
            "would lie in it: submit to another namespace, or name a checkpoint.directory");
  EXPECT_EQ(DirectoryOf(Job("demo", "mine", "elsewhere")), "elsewhere");
  // Nor the other way about.
  EXPECT_EQ(Directory("team-b", "mine"), "team-b/mine");
  EXPECT_EQ(DirectoryOf(Job("team-a", "other", "team-b")),
            "checkpoint.directory: 'team-b' is a namespace, whose job team-b/mine has its "
            "directory of checkpoints in it: name another one");
}

TEST_F(JobDirectoryTest, OneThatAnotherJobHasNamedIsNobodysDefault) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job guest = Submit(Job("team-b", "guest", "team-a/demo"));
  EXPECT_EQ(Directory("team-a", "demo"),
            "checkpoint.directory: unset, it is team-a/demo, which job team-b/guest has named for "
            "its own: name it to go on with that job's run, or another one");
  EXPECT_EQ(DirectoryOf(Job("team-a", "demo", "team-a/demo")), "team-a/demo");
  EXPECT_EQ(Directory("team-a", "demo"), "team-a/demo") << "now it is both's";
}

TEST_F(JobDirectoryTest, ASubmissionRepeatedGivesItsJob) {
  const auto first = TrySubmit(Job("team-a", "demo"), "id");
  ASSERT_TRUE(first.ok()) << first.status();
  AddOlder("team-b", "team-a", "team-a");  // which would refuse it by now
  StartCore();
  const auto again = TrySubmit(Job("team-a", "demo"), "id");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->existed());
  EXPECT_EQ(again->job().uid(), first->job().uid());
  // As an earlier mtctl asks, which fills in the name.
  EXPECT_TRUE(TrySubmit(Job("team-a", "demo", "demo"), "id").ok());
}

TEST_F(JobDirectoryTest, TheSecondDirectoryIsComparedWithTheChosenOne) {
  AddOlder("team-a", "demo", "demo");
  v1::JobSpec spec = Job("team-a", "demo");
  spec.mutable_checkpoint()->set_second("demo/copies");
  EXPECT_EQ(DirectoryOf(spec),
            "checkpoint.second: is checkpoint.directory 'demo', or one of them lies in the other");
}

TEST_F(JobDirectoryTest, ACompleteRunEndsWithWhatItsRanksSay) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(Job("team-a", "demo"));
  Accept(worker, job);
  v1::WorkerMessage info;
  info.mutable_job_report()->set_job_uid(job.uid());
  info.mutable_job_report()->set_epoch(job.epoch());
  info.mutable_job_report()->mutable_run_info()->set_resumed_from_step(10);
  info.mutable_job_report()->mutable_run_info()->set_total_steps(10);
  Report(worker, info);
  Report(worker, RankMessage(job, 0, v1::READY));
  v1::WorkerMessage ended = EndedMessage(job, 10, true);
  ended.mutable_job_report()->mutable_training_ended()->set_message(
      "nothing to do: run r1 has 10 of 10 steps");
  Report(worker, ended);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::SUCCEEDED);
  EXPECT_EQ(Get(job.uid()).message(), "nothing to do: run r1 has 10 of 10 steps");
}

}  // namespace
}  // namespace mt::daemon
