// The counters that a rank's beats report: the training thread posts them after each step, the
// channel's writing thread reads them at any time. Every value is atomic and nobody waits; the
// values of one beat may belong to two adjacent steps.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "worker/train/records.h"

namespace megatrain::v1 {
class RankTelemetry;
}

namespace mt::rank {

class TelemetryBoard {
 public:
  // Posts all counters of the run so far and the duration of the last step. Training thread.
  void Post(const train::RankCounters& counters);
  // Sets the time that the creation of the groups took, in seconds.
  void SetCommInit(double seconds) { comm_init_seconds_ = seconds; }
  // Fills in a beat's counters. One thread. The step times are those since the previous call, at
  // most the newest kRecentSteps.
  void Fill(megatrain::v1::RankTelemetry* out);

  static constexpr size_t kRecentSteps = 1'024;

 private:
  // Counters of one collective operation (comm::OpStats).
  struct AtomicOp {
    std::atomic<int64_t> calls = 0;
    std::atomic<int64_t> bytes = 0;
    std::atomic<double> seconds = 0;
  };

  std::atomic<int64_t> tokens_ = 0;
  std::atomic<double> comm_init_seconds_ = 0;
  std::array<std::atomic<double>, engine::kNumStepPhases> phase_seconds_{};
  std::array<std::atomic<int64_t>, memory::kNumKinds> memory_bytes_{};
  // Indexed by axis (tp, pp, dp, world) and operation.
  static constexpr size_t kNumAxes = 4;
  std::array<std::array<AtomicOp, comm::kNumCommOps>, kNumAxes> ops_;
  std::array<std::atomic<double>, kRecentSteps> recent_{};  // ring of step seconds
  std::atomic<uint64_t> num_steps_ = 0;
  uint64_t taken_ = 0;  // steps already reported; used by the reader
};

}  // namespace mt::rank
