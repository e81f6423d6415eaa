// Training and evaluation lines as Megatron-LM prints them, for programs that read those
// (docs/design/megatron-compat.md, "Log lines"). Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace megatrain::v1 {
class StepRecord;
}

namespace mt::report {

// The lines of a run's steps, each of all steps since the one before. One thread.
class MegatronLines {
 public:
  // Megatron-LM's count of the FLOP of a sample, divided by the slots of the job.
  explicit MegatronLines(double flops_per_sample_and_slot)
      : flops_per_sample_and_slot_(flops_per_sample_and_slot) {}

  // A step is done: the next line counts it in.
  void Add(const megatrain::v1::StepRecord& step);

  struct At {
    int64_t total_steps = 0;
    int64_t batch = 0;  // samples of the step
  };
  // The line of the steps that were added since the last line, of which `last` is the newest.
  // Loss and time are means over them, the loss without skipped ones; all else is the last step's.
  std::string Take(const megatrain::v1::StepRecord& last, const At& at);

 private:
  struct Sums {
    int64_t steps = 0;
    int64_t skipped = 0;
    int64_t nan = 0;  // skipped with a loss that is no number
    double loss = 0;  // of those that were not skipped
    double seconds = 0;
  };

  const double flops_per_sample_and_slot_;
  Sums sums_;
};

// An evaluation, between two lines of dashes. `final`: after the run's last step.
struct MegatronEval {
  int64_t step = 0;
  double loss = 0;
  bool final = false;
};
std::array<std::string, 3> MegatronEvalLines(const MegatronEval& eval);

}  // namespace mt::report
