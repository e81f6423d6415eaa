// A sampling loop with a fixed period, which does not drift with the time a reading takes. Failed
// readings are left out.
#include "worker/bench/device_gauge.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <utility>

#include "megatrain/v1/types.pb.h"
#include "worker/bench/step_samples.h"

namespace mt::bench {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

std::vector<double> All(const std::vector<nvml::Reading>& readings,
                        double (*value)(const nvml::Reading&)) {
  std::vector<double> out;
  out.reserve(readings.size());
  for (const nvml::Reading& reading : readings) out.push_back(value(reading));
  return out;
}

// Share of the readings, 0 to 1, with one of these throttle reasons.
double ShareWith(const std::vector<nvml::Reading>& readings, uint64_t reasons) {
  const auto count = std::ranges::count_if(
      readings, [&](const nvml::Reading& r) { return (r.throttle_reasons & reasons) != 0; });
  return static_cast<double>(count) / static_cast<double>(readings.size());
}

}  // namespace

StatusOr<std::unique_ptr<DeviceGauge>> DeviceGauge::Create(const std::string& uuid,
                                                           const std::string& library) {
  ASSIGN_OR_RETURN(std::unique_ptr<nvml::Library> opened, nvml::Library::Open(library));
  ASSIGN_OR_RETURN(const int gpu, opened->IndexOf(uuid));
  ASSIGN_OR_RETURN(nvml::Gpu facts, opened->Describe(gpu));
  return std::unique_ptr<DeviceGauge>(new DeviceGauge(std::move(opened), gpu, std::move(facts)));
}

DeviceGauge::DeviceGauge(std::unique_ptr<nvml::Library> library, int gpu, nvml::Gpu facts)
    : library_(std::move(library)), gpu_(gpu), facts_(std::move(facts)) {}

DeviceGauge::~DeviceGauge() { Stop(); }

void DeviceGauge::Start() {
  if (thread_.joinable()) return;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "gauge");
    Run();
  });
}

void DeviceGauge::Stop() {
  if (!thread_.joinable()) return;
  {
    base::MutexLock lock(&mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

void DeviceGauge::ReadOnce() {
  const auto reading = library_->Read(gpu_);
  if (reading.ok()) readings_.push_back(*reading);
}

void DeviceGauge::Run() {
  auto next = std::chrono::steady_clock::now();
  for (bool last = false; !last;) {
    ReadOnce();
    next += kInterval;
    base::MutexLock lock(&mu_);
    while (!stopping_ && wake_.WaitUntil(&mu_, next)) {
    }
    last = stopping_;
  }
}

bool DeviceGauge::Fill(megatrain::v1::DeviceReadings* out) const {
  if (readings_.empty()) return false;
  const auto sm = All(readings_, [](const nvml::Reading& r) -> double { return r.sm_clock_mhz; });
  const auto memory =
      All(readings_, [](const nvml::Reading& r) -> double { return r.memory_clock_mhz; });
  const auto power = All(readings_, [](const nvml::Reading& r) { return r.power_watts; });
  const auto heat = All(readings_, [](const nvml::Reading& r) { return r.temperature_celsius; });
  out->set_samples(static_cast<int64_t>(readings_.size()));
  out->set_median_sm_clock_mhz(Median(sm));
  out->set_min_sm_clock_mhz(*std::ranges::min_element(sm));
  out->set_max_sm_clock_mhz(facts_.max_sm_clock_mhz);
  out->set_median_memory_clock_mhz(Median(memory));
  out->set_median_power_watts(Median(power));
  out->set_max_power_watts(*std::ranges::max_element(power));
  out->set_power_limit_watts(facts_.power_limit_watts);
  out->set_max_temperature_celsius(*std::ranges::max_element(heat));
  out->set_power_capped(ShareWith(readings_, nvml::kThrottlePowerCap | nvml::kThrottlePowerBrake));
  out->set_thermally_slowed(
      ShareWith(readings_, nvml::kThrottleThermalSoftware | nvml::kThrottleThermalHardware));
  return true;
}

}  // namespace mt::bench
