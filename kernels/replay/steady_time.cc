// Wall-clock time between two synchronisations of the stream around many rounds: what matters is
// the throughput of repeated work, not the latency of one call.
#include "kernels/replay/steady_time.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>

namespace mt::kernels::replay {
namespace {

constexpr size_t kBatches = 5;
// Kernel launches in one recording: enough that the gap to the next recording is a small share.
constexpr int kCallsPerRecording = 64;

double SecondsOf(Stream& stream, const std::function<void()>& work, int64_t times) {
  stream.Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < times; ++i) work();
  stream.Synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double MedianSeconds(Device& device, Stream& stream, int calls, double seconds,
                     const std::function<void()>& round) {
  round();  // touches memory and builds plans
  stream.Synchronize();
  const int rounds = std::max(1, kCallsPerRecording / std::max(1, calls));
  std::string why_not;
  const auto recording = device.Record(
      stream,
      [&] {
        for (int i = 0; i < rounds; ++i) round();
      },
      &why_not);
  const int rounds_per_work = recording != nullptr ? rounds : 1;
  const std::function<void()> work =
      recording != nullptr ? [&] { recording->Launch(stream); } : round;
  const double once = std::max(SecondsOf(stream, work, 1), 1e-7);
  const auto times = std::max<int64_t>(1, std::llround(seconds / kBatches / once));
  std::array<double, kBatches> batches{};
  for (double& batch : batches) batch = SecondsOf(stream, work, times);
  std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
  return batches[kBatches / 2] / static_cast<double>(times * rounds_per_work);
}

}  // namespace mt::kernels::replay
