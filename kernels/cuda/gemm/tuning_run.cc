// Races are timed with CUDA events between the turns. The first call of each contender loads its
// kernels, the second is timed to choose the number of repetitions per turn.
#include "kernels/cuda/gemm/tuning_run.h"

#include <algorithm>

#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_ops.h"

namespace mt::kernels::cuda {
namespace {

constexpr int kLongestBurst = 64, kMostLeadLaps = 1000;

double Median(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

}  // namespace

// CUDA events in a stream, and the times between neighbouring ones.
class TuningRun::Marks {
 public:
  explicit Marks(size_t count) : events_(count) {
    for (cudaEvent_t& event : events_) CUDA_CHECK(cudaEventCreate(&event));
  }
  ~Marks() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  void Put(const CudaStream& stream) {
    CUDA_CHECK(cudaEventRecord(events_[next_++], stream.raw()));
  }
  // Returns the microseconds from mark i to the next one. Blocks until that one is reached.
  double UsAfter(size_t i) const {
    CUDA_CHECK(cudaEventSynchronize(events_[i + 1]));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, events_[i], events_[i + 1]));
    return static_cast<double>(ms) * 1000;
  }

 private:
  std::vector<cudaEvent_t> events_;
  size_t next_ = 0;
};

TuningRun::TuningRun(const DeviceLimits& limits)
    : device_(limits), stream_(limits.ordinal, StreamPriority::kLow) {}

void* TuningRun::Random(DType dtype, int64_t elements, double std) {
  buffers_.push_back(device_.Allocate(elements * SizeOf(dtype), MemoryKind::kDevice));
  void* const data = buffers_.back()->data();
  CudaRandom().FillNormal(stream_,
                          {.key = buffers_.size(), .std = std, .out = {data, dtype, {elements}}});
  return data;
}

std::vector<double> TuningRun::Race(const std::vector<Contender>& contenders,
                                    const Length& length) {
  const size_t n = contenders.size();
  if (n == 0) return {};
  const CudaStream& stream = CudaStreamOf(stream_);
  std::vector<int> turns(n, 0), bursts(n, 1);
  // The first calls load kernels; the second ones determine how many calls make a burst.
  for (size_t i = 0; i < n; ++i) contenders[i](turns[i]++);
  Marks once(n + 1);
  once.Put(stream);
  for (size_t i = 0; i < n; ++i) {
    contenders[i](turns[i]++);
    once.Put(stream);
  }
  double lap_us = 0;
  for (size_t i = 0; i < n; ++i) {
    const double us = std::max(once.UsAfter(i), 1.0);
    bursts[i] = std::clamp(static_cast<int>(length.burst_us / us + 0.5), 1, kLongestBurst);
    lap_us += us;
  }
  const int lead_laps = std::min(static_cast<int>(length.lead_us / lap_us), kMostLeadLaps);
  for (int lap = 0; lap < lead_laps; ++lap) {
    for (size_t i = 0; i < n; ++i) contenders[i](turns[i]++);
  }
  Marks marks(n * static_cast<size_t>(length.rounds) + 1);
  marks.Put(stream);
  for (size_t round = 0; round < static_cast<size_t>(length.rounds); ++round) {
    for (size_t place = 0; place < n; ++place) {
      const size_t i = (place + round) % n;
      for (int call = 0; call < bursts[i]; ++call) contenders[i](turns[i]++);
      marks.Put(stream);
    }
  }
  std::vector<std::vector<double>> times(n);
  for (size_t mark = 0; mark < n * static_cast<size_t>(length.rounds); ++mark) {
    const size_t i = (mark % n + mark / n) % n;
    times[i].push_back(marks.UsAfter(mark) / bursts[i]);
  }
  std::vector<double> medians;
  medians.reserve(n);
  for (std::vector<double>& own : times) medians.push_back(Median(&own));
  return medians;
}

}  // namespace mt::kernels::cuda
