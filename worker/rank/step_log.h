// The rank's own log of its run: a line per event, and one per step at the job's interval; those of
// steps and evaluations as Megatron-LM has them where the job says so. Passes every report on to
// another observer. Training thread.
#pragma once

#include <cstdint>
#include <optional>

#include "common/report/megatron_lines.h"
#include "common/spec/batch_ramp.h"
#include "worker/train/observer.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::rank {

class StepLog : public train::TrainObserver {
 public:
  // `job`: completed, its vocabulary settled. `next` may be nullptr; it must outlive this.
  StepLog(const megatrain::v1::JobSpec& job, train::TrainObserver* next);

  void OnState(train::TrainState state, int64_t step) override;
  void OnProgress(int64_t step) override;
  void OnActivity(const train::Activity& activity) override;
  void OnActivityEnd(train::ActivityKind kind) override;
  void OnCounters(const train::RankCounters& counters) override;
  void OnRunInfo(const train::RunInfo& info) override;
  void OnStep(const megatrain::v1::StepRecord& record) override;
  void OnEval(const train::EvalRecord& record) override;
  void OnBench(const megatrain::v1::BenchReport& report) override;
  void OnCheckpointSaved(const train::CheckpointRecord& record) override;
  void OnCheckpointFailed(int64_t step, const Status& why) override;
  void OnSecondCopy(const train::SecondCopyRecord& record) override;
  void OnCheckpointsDeleted(const std::vector<std::string>& paths) override;
  void OnCommandDone(const train::CommandResult& result) override;
  void OnSettings(const train::RunSettings& settings) override;
  void OnFailed(const Status& why, bool alone) override;

 private:
  // What lines in Megatron-LM's format are made of.
  struct Megatron {
    report::MegatronLines lines;
    spec::BatchRamp ramp;
  };

  int64_t log_every_;
  std::optional<Megatron> megatron_;  // nullopt: lines are key=value
  train::TrainObserver* next_;
  int64_t total_steps_ = 0;
};

}  // namespace mt::rank
