// The last steps as the host sees them. Each slot holds the summed vector and the scalars after the
// step, copied out behind it, a CUDA event at its end, and the values that the host adds to the
// vector. A ring of three, so that the host runs at most two steps ahead and never waits for more
// than the step two before.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kernels/core/device.h"
#include "kernels/ops/step_scalars.h"
#include "worker/engine/step_vector.h"

namespace mt::engine {

struct StepOutcome {
  StepVector vector;
  kernels::StepScalars scalars;
};

// One thread. The device must outlive it.
class StepRing {
 public:
  static constexpr int64_t kSteps = 3;

  explicit StepRing(kernels::Device* device);

  // Opens the slot of this step; waits for the end of the step kSteps before.
  void Begin(int64_t step);
  // Values of the host that the open step copies into its vector: the first four in StepVector's
  // order, and a loss that spoils the step.
  struct HostValues {
    double command_bits = 0;
    double fault = 0;
    double pipeline_wait = 0;
    double label_bytes = 0;
    double spoiled_loss = 0;
  };
  // Of the open step, in pinned memory; they must be set before the copies are enqueued.
  HostValues* host_values();
  // Copies both blocks out in stream order and marks the end of the open step.
  void End(kernels::Stream& stream, const StepVector* vector, const kernels::StepScalars* scalars);
  // Waits for the end of `step`, one of the last kSteps, and returns its outcome.
  StepOutcome Read(int64_t step);
  // True if Read would return at once.
  bool IsDone(int64_t step);

 private:
  struct Slot {
    int64_t step = -1;
    std::unique_ptr<kernels::Event> done;
    std::unique_ptr<kernels::DeviceBuffer> pinned;  // PinnedBlock
  };
  struct PinnedBlock {
    StepOutcome outcome;
    HostValues host_values;
  };
  Slot& slot(int64_t step) { return slots_[static_cast<size_t>(step % kSteps)]; }
  static PinnedBlock* Pinned(Slot& slot) { return static_cast<PinnedBlock*>(slot.pinned->data()); }

  kernels::Device* device_;
  int64_t open_step_ = -1;
  std::array<Slot, kSteps> slots_;
};

}  // namespace mt::engine
