// What makes a training run a benchmark: it stands between the trainer and its observer, takes the
// measured steps out of the stream of records, and measures the device once the steps are done. The
// steps are the trainer's own; nothing of this runs within them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/backend.h"
#include "kernels/replay/call_log.h"
#include "worker/bench/device_gauge.h"
#include "worker/bench/step_samples.h"
#include "worker/train/observer.h"

namespace mt::bench {

// Of one rank of a job of kind bench. Training thread.
class BenchRun final : public train::TrainObserver {
 public:
  struct Args {
    const megatrain::v1::JobSpec* job = nullptr;  // completed and resolved
    int rank = 0;                                 // rank 0 measures and reports
    kernels::Backend* backend = nullptr;          // all must outlive this
    train::TrainObserver* next = nullptr;
    // Of G, and per kind of kernel (kernels/replay/replay.h).
    double product_seconds = 1;
    double kernel_seconds = 0.2;
    double large_kernel_seconds = 2;
  };
  explicit BenchRun(const Args& args);
  ~BenchRun() override;

  // What the trainer is to compute with: the backend, or with bench.kernels one that logs the calls
  // of the first step.
  kernels::Backend* backend();
  // After the last step, with the trainer's memory still in place: measures, and reports through
  // next->OnBench. The memory's contents are gone afterwards. Blocks.
  void Finish(const Status& trained);

  void OnState(train::TrainState state, int64_t step) override;
  void OnProgress(int64_t step) override;
  void OnCounters(const train::RankCounters& counters) override {
    args_.next->OnCounters(counters);
  }
  void OnRunInfo(const train::RunInfo& info) override { args_.next->OnRunInfo(info); }
  void OnStep(const train::StepRecord& record) override;
  void OnEval(const train::EvalRecord& record) override { args_.next->OnEval(record); }
  void OnCheckpointSaved(const train::CheckpointRecord& record) override {
    args_.next->OnCheckpointSaved(record);
  }
  void OnCheckpointFailed(int64_t step, const Status& why) override {
    args_.next->OnCheckpointFailed(step, why);
  }
  void OnCheckpointsDeleted(const std::vector<std::string>& paths) override {
    args_.next->OnCheckpointsDeleted(paths);
  }
  void OnCommandDone(const train::CommandResult& result) override {
    args_.next->OnCommandDone(result);
  }
  void OnSettings(const train::RunSettings& settings) override { args_.next->OnSettings(settings); }

 private:
  bool measures() const { return args_.rank == 0; }
  void MeasureDevice(megatrain::v1::BenchReport* report);
  void TimeKernels(megatrain::v1::BenchReport* report);

  const Args args_;
  kernels::replay::CallLog log_;
  std::unique_ptr<kernels::Backend> logging_;
  std::unique_ptr<DeviceGauge> gauge_;
  StepSamples samples_;
  bool exiting_ = false;  // told by the trainer, not yet handed on
  int64_t last_step_ = 0;
};

}  // namespace mt::bench
