// The thread sleeps in short pieces, so that it ends soon after the gauge.
#include "worker/rank/gpu_gauge.h"

#include <chrono>
#include <pthread.h>
#include <thread>

#include "common/control/numbers.h"
#include "megatrain/v1/rank.pb.h"

namespace mt::rank {
namespace {

constexpr std::chrono::milliseconds kNap{50};
constexpr std::chrono::seconds kPatience{1};

}  // namespace

GpuGauge::GpuGauge() : shared_(std::make_shared<Shared>()) {}

GpuGauge::~GpuGauge() {
  shared_->stopping = true;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (shared_->running && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kNap / 10);
}

void GpuGauge::Start(const std::string& uuid, const std::string& library) {
  shared_->running = true;
  std::thread([shared = shared_, uuid, library] {
    // Ends after the library is closed, which exit() of the process must not meet half-way.
    const std::unique_ptr<Shared, void (*)(Shared*)> done(shared.get(),
                                                          [](Shared* s) { s->running = false; });
    pthread_setname_np(pthread_self(), "gpu-gauge");
    const auto opened = nvml::Library::Open(library);
    if (!opened.ok()) return;
    const auto gpu = (*opened)->IndexOf(uuid);
    if (!gpu.ok()) return;
    while (!shared->stopping) {
      const auto reading = (*opened)->Read(*gpu);
      shared->utilization = reading.ok() ? reading->utilization.value_or(-1) : -1;
      const auto until = std::chrono::steady_clock::now() + control::kRankBeatInterval;
      while (!shared->stopping && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(kNap);
    }
  }).detach();
}

void GpuGauge::Fill(megatrain::v1::RankTelemetry* out) const {
  const double utilization = shared_->utilization;
  if (utilization >= 0) out->set_gpu_utilization(utilization);
}

}  // namespace mt::rank
