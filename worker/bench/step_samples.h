// The measured steps of a benchmark and what they say together. Pure; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/train/records.h"

namespace megatrain::v1 {
class BenchReport;
class JobSpec;
}  // namespace megatrain::v1

namespace mt::bench {

// The value that `share` of the sorted samples do not exceed (nearest rank); share in (0, 1].
double Quantile(std::vector<double> samples, double share);
// The middle one, or the mean of the middle two.
double Median(std::vector<double> samples);

class StepSamples {
 public:
  // A step of the warm-up is not measured, but for the host's time to enqueue it: where the device
  // is slower than the host, that of later steps waits for room in the device's queue.
  void Add(const train::StepRecord& record, bool measured);
  bool empty() const { return records_.empty(); }
  // Everything of the report that follows from the job and the steps: times, rates, phases, memory
  // by kind. At least one step.
  void Fill(const megatrain::v1::JobSpec& job, megatrain::v1::BenchReport* report) const;

 private:
  void FillTimes(megatrain::v1::BenchReport* report) const;
  void FillMeans(megatrain::v1::BenchReport* report) const;

  std::vector<train::StepRecord> records_;  // measured
  double least_launch_seconds_ = 0;         // of all steps after the first
};

}  // namespace mt::bench
