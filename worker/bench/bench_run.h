// Turns a training run into a benchmark. It stands between the trainer and its observer, collects
// the records of the measured steps, and measures the device once they are done. The steps are the
// trainer's own; nothing of this runs within them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "kernels/replay/call_log.h"
#include "worker/bench/device_gauge.h"
#include "worker/bench/step_samples.h"
#include "worker/comm/process_group.h"
#include "worker/trace/step_tracer.h"
#include "worker/train/observer.h"

namespace megatrain::v1 {
class JobTrace;
}

namespace mt::bench {

// One rank of a job of kind bench. All calls come from the training thread; every event is passed
// on to the next observer.
class BenchRun final : public train::TrainObserver {
 public:
  struct Args {
    const megatrain::v1::JobSpec* job = nullptr;  // completed and resolved
    int rank = 0;                                 // rank 0 alone measures and reports
    kernels::Backend* backend = nullptr;          // not owned; all pointers must outlive this
    comm::ProcessGroup* world = nullptr;          // of all ranks, of host memory; nullptr: one rank
    train::TrainObserver* next = nullptr;
    // Time spent on the large matrix product (MeasureProduct), and on each kind of kernel
    // (kernels/replay/replay.h), in seconds; CPUs have no clocks that large ones would settle.
    double product_seconds = 1;
    double kernel_seconds = 0.2;
    double large_kernel_seconds = 2;
    // Rank 0 writes a Chrome trace of the steps whose communication is timed to this file; every
    // call of it is timed then. Empty: it does not. The same on every rank.
    std::string trace_file = {};
  };
  explicit BenchRun(const Args& args);
  ~BenchRun() override;

  // The backend that the trainer must use: the given one, or with bench.kernels one that logs the
  // calls of the first step.
  kernels::Backend* backend();
  // The first measured steps, which the trainer must trace (TrainArgs::trace); empty where nothing
  // communicates, the device's calls block, and no trace is asked for.
  trace::TraceSteps steps_to_trace() const;
  // Collective, where the training succeeded on every rank; rank 0 then measures the device and
  // reports through next->OnBench. Called after the last step, while the trainer's memory is still
  // allocated, whose contents it overwrites. Blocks for seconds. An error where the trace's file
  // could not be written; the report has been given.
  Status Finish(const Status& trained);

  void OnState(train::TrainState state, int64_t step) override;
  void OnProgress(int64_t step) override;
  void OnCounters(const train::RankCounters& counters) override {
    args_.next->OnCounters(counters);
  }
  void OnActivity(const train::Activity& activity) override { args_.next->OnActivity(activity); }
  void OnActivityEnd(train::ActivityKind kind) override { args_.next->OnActivityEnd(kind); }
  void OnRunInfo(const train::RunInfo& info) override { args_.next->OnRunInfo(info); }
  void OnStep(const megatrain::v1::StepRecord& record) override;
  void OnEval(const train::EvalRecord& record) override { args_.next->OnEval(record); }
  void OnTrace(const megatrain::v1::RankTrace& trace) override;
  void OnCheckpointSaved(const train::CheckpointRecord& record) override {
    args_.next->OnCheckpointSaved(record);
  }
  void OnCheckpointFailed(int64_t step, const Status& why) override {
    args_.next->OnCheckpointFailed(step, why);
  }
  void OnSecondCopy(const train::SecondCopyRecord& record) override {
    args_.next->OnSecondCopy(record);
  }
  void OnCheckpointsDeleted(const std::vector<std::string>& paths) override {
    args_.next->OnCheckpointsDeleted(paths);
  }
  void OnCommandDone(const train::CommandResult& result) override {
    args_.next->OnCommandDone(result);
  }
  void OnSettings(const train::RunSettings& settings) override { args_.next->OnSettings(settings); }
  void OnFailed(const Status& why, bool alone) override { args_.next->OnFailed(why, alone); }

 private:
  // True on the rank that collects records and reports.
  bool measures() const { return args_.rank == 0; }
  // Collective: the traces of all ranks, of one alone where they are too many. On other ranks than
  // the first they stay empty.
  Status GatherTraces();
  // Adds what communication took, by axis, group and link, and the bubble by formula.
  void FillCommunication(megatrain::v1::BenchReport* report) const;
  Status WriteTrace() const;
  // Adds stated peak, device memory and the rate of a large product to the report.
  void MeasureDevice(megatrain::v1::BenchReport* report);
  // Replays the logged calls and adds the time of each kind to the report.
  void TimeKernels(megatrain::v1::BenchReport* report);

  const Args args_;
  kernels::replay::CallLog log_;
  std::unique_ptr<kernels::Backend> logging_;
  std::unique_ptr<megatrain::v1::RankTrace> mine_;   // nullptr: none was made
  std::unique_ptr<megatrain::v1::JobTrace> traces_;  // rank 0; nullptr: none
  std::unique_ptr<DeviceGauge> gauge_;
  StepSamples samples_;
  bool exiting_ = false;  // the trainer reported kExiting, not yet passed on
  int64_t last_step_ = 0;
};

}  // namespace mt::bench
