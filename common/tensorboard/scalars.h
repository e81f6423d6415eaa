// Which scalars a job's event files have, under which tags (README.md): every metric that
// StepRecord declares, and what evaluations measure. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensorboard/event_file.h"

namespace megatrain::v1 {
class EvalRecord;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::tensorboard {

// The tag of a metric by its name in the history: "loss" gives "lm loss", "phase_seconds/forward"
// itself.
std::string TagOf(std::string_view metric);

// The sizes of steps where nothing but what the run has consumed after each is known. One thread.
class BatchSizes {
 public:
  // In samples; nullopt where the step before was not told, unless it is the first one of a run.
  std::optional<int64_t> Next(int64_t step, int64_t consumed_samples);

 private:
  int64_t step_ = 0;
  int64_t consumed_samples_ = 0;
};
inline constexpr char kBatchSizeTag[] = "batch-size";

// The scalars of a step: each metric that it reports; a loss that is no number stays one. `batch`:
// its samples, where they are known.
std::vector<Scalar> ScalarsOf(const megatrain::v1::StepRecord& step, std::optional<int64_t> batch);

// The scalars of an evaluation.
std::vector<Scalar> ScalarsOf(const megatrain::v1::EvalRecord& eval);

}  // namespace mt::tensorboard
