// Turns what a step left (summed vector, scalars, times) into its record and its verdict.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "worker/engine/step_ring.h"
#include "worker/train/records.h"

namespace megatrain::v1 {
class StepRecord;
}

namespace mt::train {

// Constants of a run's records.
struct StepReportConfig {
  double model_flops_per_sample = 0;
  double model_flops_full_per_sample = 0;
  int64_t world_size = 1;
  int64_t epoch = 0;
  memory::BytesByKind memory_bytes{};
};

// What the host knows of a step; the times once the device has ended it (phase_clock.h).
struct StepTimes {
  int64_t batch = 0;          // samples
  double launch_seconds = 0;  // the host's, from the step's first call to its last
  double step_seconds = 0;
  engine::PhaseSeconds phase_seconds{};
};

// The record of a step, without the time at which its results were read.
megatrain::v1::StepRecord MakeStepRecord(const StepReportConfig& config, int64_t step,
                                         const engine::StepOutcome& outcome,
                                         const StepTimes& times);

// Whether the sums of a step are numbers: what AdvanceStepScalars judged, but for steps that merely
// had no token.
bool IsFinite(const engine::StepVector& vector);
// The error that ends a run whose policy is to stop at such a step: cause NUMERIC.
Status NonfiniteError(int64_t step, const engine::StepVector& vector);

// What of this process is in memory; 0 where /proc does not say.
struct ResidentMemory {
  int64_t own_bytes = 0;          // anonymous and shared
  int64_t mapped_file_bytes = 0;  // pages of files, which the kernel takes back as it needs
};
ResidentMemory ReadResidentMemory();

}  // namespace mt::train
