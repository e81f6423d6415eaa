// Statistics over the measured steps of a benchmark.
#pragma once

#include <cstdint>
#include <vector>

namespace megatrain::v1 {
class BenchReport;
class JobSpec;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::bench {

// The smallest sample that at least `share` of all samples do not exceed (nearest rank); share in
// (0, 1] and samples not empty (CHECK).
double Quantile(std::vector<double> samples, double share);
// The median; the mean of the two middle samples for an even number. CHECKs that there are samples.
double Median(std::vector<double> samples);

// Not thread-safe; does no measurement of its own.
class StepSamples {
 public:
  StepSamples();
  ~StepSamples();
  // Adds a step. Warm-up steps are not measured, but count for the launch time, which is the least
  // of all steps: on a device slower than the host the launches of later steps wait for room in the
  // device's queue.
  void Add(const megatrain::v1::StepRecord& record, bool measured);
  bool empty() const;
  // Fills in everything that follows from the job and the steps: times, rates, phases, memory by
  // kind. CHECKs that a step was measured.
  void Fill(const megatrain::v1::JobSpec& job, megatrain::v1::BenchReport* report) const;

 private:
  void FillTimes(megatrain::v1::BenchReport* report) const;
  void FillMeans(megatrain::v1::BenchReport* report) const;

  std::vector<megatrain::v1::StepRecord> records_;  // of measured steps
  double least_launch_seconds_ = 0;  // host time to enqueue a step; of all steps but the first
};

}  // namespace mt::bench
