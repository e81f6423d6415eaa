// A job that has saved, and ranks that do not find what they must: the fixture of bases_test.cc and
// bases_queue_test.cc.
#pragma once

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

inline constexpr char kReason[] = "EXPECTED_CHECKPOINT_MISSING";

class BasesTest : public CoreTest {
 protected:
  static v1::Assign LastAssign(const Worker& worker) {
    v1::Assign last;
    for (const auto& message : worker.link->received) {
      if (message.has_assign()) last = message.assign();
    }
    return last;
  }
  void Save(Worker& worker, const v1::Job& job, int64_t step) {
    v1::WorkerMessage message = SavedMessage(job, step);
    auto& saved = *message.mutable_job_report()->mutable_checkpoint_saved();
    saved.set_digest("xxh3:" + std::to_string(step));
    saved.set_epoch(3);
    saved.set_root_id("root-a");
    Report(worker, std::move(message));
  }
  // A job that has saved these steps, released, with nothing running.
  v1::Job Released(Worker& worker, const std::vector<int64_t>& steps,
                   const std::string& more = "") {
    const v1::Job job = StartRunning(worker, "job", 1, more);
    for (const int64_t step : steps) Save(worker, job, step);
    EXPECT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
    Gone(worker, job);
    EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
    return Get(job.uid());
  }
  StatusOr<v1::Operation> ResumeFrom(const std::string& uid, bool allow_older, bool fresh) {
    v1::ResumeRequest request;
    request.set_allow_older(allow_older);
    request.set_fresh(fresh);
    return Do(&VerbsApi::Resume, request, uid);
  }
  // Rank 0 did not find its base.
  static v1::WorkerMessage MissingMessage(const v1::Job& job) {
    v1::WorkerMessage message = RankMessage(job, 0, v1::FAULTED);
    v1::RankReport& report = *message.mutable_rank_report();
    report.set_cause(v1::STORAGE);
    report.set_reason(kReason);
    report.mutable_status()->set_exited(true);
    report.mutable_status()->set_exit_code(73);
    report.mutable_status()->set_message("step 20 (xxh3:20) is expected in /ckpt/job");
    return message;
  }
  // The placement that is under way fails for that, and its ranks are gone.
  void Miss(Worker& worker, const std::string& uid) {
    const v1::Job job = Get(uid);
    ASSERT_EQ(job.state(), v1::ADMITTED);
    Accept(worker, job);
    Report(worker, MissingMessage(job));
    Gone(worker, job);
  }
  void Start(Worker& worker, const std::string& uid, int64_t from) {
    const v1::Job job = Get(uid);
    ASSERT_EQ(job.state(), v1::ADMITTED);
    Accept(worker, job);
    ReportStart(worker, job, from);
    Report(worker, RankMessage(job, 0, v1::READY));
    EXPECT_EQ(Get(uid).state(), v1::RUNNING);
  }
  void ReportStart(Worker& worker, const v1::Job& job, int64_t from,
                   const std::string& damaged = "") {
    v1::WorkerMessage info;
    info.mutable_job_report()->set_job_uid(job.uid());
    info.mutable_job_report()->set_epoch(job.epoch());
    info.mutable_job_report()->mutable_run_info()->set_resumed_from_step(from);
    if (!damaged.empty())
      info.mutable_job_report()->mutable_run_info()->add_damaged_checkpoints(damaged);
    Report(worker, std::move(info));
  }
  void ExpectWaits(const std::string& uid) {
    const v1::Job job = Get(uid);
    EXPECT_EQ(job.state(), v1::QUEUED);
    EXPECT_TRUE(job.ranks().empty());
    ASSERT_EQ(ConditionsOf(job), "Waiting");
    EXPECT_TRUE(job.conditions(0).message().starts_with("ExpectedCheckpointMissing: step 20"))
        << job.conditions(0).message();
    EXPECT_EQ(job.cause(), v1::CAUSE_UNSPECIFIED);
    EXPECT_EQ(job.failed_rank(), -1);
  }
};

}  // namespace mt::daemon
