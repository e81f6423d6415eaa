// What a rank's beats tell of its work: the training thread posts after each step, the beat's
// thread reads whenever it likes. Single values are atomic and nobody waits for anybody; numbers of
// one beat may be of two neighbouring steps.
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
  // Training thread.
  void Post(const train::RankCounters& counters);
  // How long the group took to come up.
  void SetCommInit(double seconds) { comm_init_seconds_ = seconds; }
  // One thread. Step times are those since the call before, at most kRecentSteps.
  void Fill(megatrain::v1::RankTelemetry* out);

  static constexpr size_t kRecentSteps = 1'024;

 private:
  struct AtomicOp {
    std::atomic<int64_t> calls = 0;
    std::atomic<int64_t> bytes = 0;
    std::atomic<double> seconds = 0;
  };

  std::atomic<int64_t> tokens_ = 0;
  std::atomic<double> comm_init_seconds_ = 0;
  std::array<std::atomic<double>, train::kNumStepPhases> phase_seconds_{};
  std::array<std::atomic<int64_t>, memory::kNumKinds> memory_bytes_{};
  // By axis: tp, pp, dp, world.
  static constexpr size_t kNumAxes = 4;
  std::array<std::array<AtomicOp, comm::kNumCommOps>, kNumAxes> ops_;
  std::array<std::atomic<double>, kRecentSteps> recent_{};
  std::atomic<uint64_t> num_steps_ = 0;
  uint64_t taken_ = 0;  // the reader's
};

}  // namespace mt::rank
