// Steps, evaluations, checkpoints and a benchmark's figures as JSON lines, numbers to the last bit
// (17 digits): for tests, plots and comparisons of standalone runs. A line is in the file when the
// call returns.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/train/observer.h"

namespace mt::rank {

class MetricsFile final : public train::TrainObserver {
 public:
  // Appends to `path`. The folder must exist.
  static StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path);
  ~MetricsFile() override;

  void OnRunInfo(const train::RunInfo& info) override;
  void OnStep(const train::StepRecord& record) override;
  void OnEval(const train::EvalRecord& record) override;
  void OnBench(const megatrain::v1::BenchReport& report) override;
  void OnCheckpointSaved(const train::CheckpointRecord& record) override;
  void OnCheckpointFailed(int64_t step, const Status& why) override;

 private:
  explicit MetricsFile(std::FILE* file) : file_(file) {}
  void WriteLine(const std::string& line);

  std::FILE* file_;
};

}  // namespace mt::rank
