// The gauges of saves belong to the run: they begin at the step that was gone on from, and no alert
// fires for what was never at risk.
#include <gtest/gtest.h>

#include "common/metrics/registry.h"
#include "daemon/meters/coordinator_meter.h"
#include "tests/common/metrics/exposition.h"
#include "tests/daemon/core/history_core_fixture.h"
#include "tests/daemon/core/run_rig.h"

namespace mt::daemon {
namespace {

class RunMeterTest : public RunRig<HistoryCoreTest> {
 protected:
  void SetUp() override {
    RunRig<HistoryCoreTest>::SetUp();
    meter_ = std::make_unique<CoordinatorMeter>(CoordinatorMeter::Config{.registry = &registry_,
                                                                         .clock = &clock_,
                                                                         .history = history_.get(),
                                                                         .state_dir = folder_,
                                                                         .version = "1.2.3"});
  }
  // NaN: it is not shown.
  double Gauge(const std::string& name) {
    Pass(std::chrono::seconds(1));  // it looks anew at an interval
    meter_->Update(*core_);
    const metrics::Exposition shown(registry_.Text());
    for (const char* labels : {"{mt_job=\"tiny\",mt_namespace=\"default\"}",
                               "{mt_namespace=\"default\",mt_job=\"tiny\"}"}) {
      if (shown.Has(name + labels)) return shown.Value(name + labels);
    }
    return std::nan("");
  }
  double SavedStep() { return Gauge("mt_checkpoint_last_success_step"); }
  double SavedTime() { return Gauge("mt_checkpoint_last_success_timestamp_seconds"); }
  // What MegatrainCheckpointStale compares with two intervals.
  double StepsAtRisk() { return Gauge("mt_job_step") - SavedStep(); }

  metrics::Registry registry_;
  std::unique_ptr<CoordinatorMeter> meter_;
};

TEST_F(RunMeterTest, TheLastSaveIsTheOneThatWasGoneOnFrom) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "run-a", 0);
  EXPECT_EQ(SavedStep(), 0);
  EXPECT_TRUE(std::isnan(SavedTime())) << "there was none";
  Train(worker, first, 1, 35);
  Save(worker, first, 30);
  EXPECT_EQ(SavedStep(), 30);
  Fail(worker, first);
  const v1::Job again = SubmitAndBegin(worker, "tiny", "run-a", 30);
  EXPECT_EQ(SavedStep(), 30);
  EXPECT_EQ(StepsAtRisk(), 0) << "before its first step";
  const double began = SavedTime();
  EXPECT_FALSE(std::isnan(began)) << "the time counts from the start";
  EXPECT_GT(began, 3) << "later than the save, which is as old as it likes";
  Train(worker, again, 31, 38);
  EXPECT_EQ(StepsAtRisk(), 8);
  EXPECT_EQ(SavedTime(), began);
  Save(worker, again, 38);
  EXPECT_EQ(StepsAtRisk(), 0);
}

TEST_F(RunMeterTest, ASaveOfAnotherRunIsNoneOfThisOne) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job = SubmitAndBegin(worker, "tiny", "run-a", 0);
  Train(worker, job, 1, 20);
  Release(worker, job, 20);
  ASSERT_TRUE(Resume(job.uid()).ok());
  // As with resume --fresh.
  job = Begin(worker, job.uid(), RunOf("run-b"), 0);
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(SavedStep(), 0);
  Train(worker, job, 1, 5);
  EXPECT_EQ(StepsAtRisk(), 5);
  Save(worker, job, 5);
  EXPECT_EQ(SavedStep(), 5);
}

}  // namespace
}  // namespace mt::daemon
