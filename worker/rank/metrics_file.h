// Writes steps, evaluations, checkpoints and benchmark results as JSON lines, for tests, plots and
// comparisons of standalone runs. Numbers have 17 digits and therefore survive a round trip bit for
// bit. A line is in the file when the call returns. Training thread.
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
  // Opens `path` for appending; its folder must exist. Errors: those of opening a file.
  static StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path);
  ~MetricsFile() override;

  void OnRunInfo(const train::RunInfo& info) override;
  void OnStep(const megatrain::v1::StepRecord& record) override;
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
