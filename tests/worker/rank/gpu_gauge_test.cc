// How busy a rank's GPU is, through a library that replaces the driver's (fake_driver.cc).
#include "worker/rank/gpu_gauge.h"

#include <thread>

#include <gtest/gtest.h>

#include "megatrain/v1/rank.pb.h"

namespace mt::rank {
namespace {

TEST(GpuGauge, TellsWhatTheDriverTells) {
  GpuGauge gauge;
  megatrain::v1::RankTelemetry telemetry;
  gauge.Fill(&telemetry);
  EXPECT_FALSE(telemetry.has_gpu_utilization()) << "not started";
  gauge.Start("GPU-aaaa", MT_FAKE_DRIVER);
  while (!telemetry.has_gpu_utilization()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gauge.Fill(&telemetry);
  }
  EXPECT_DOUBLE_EQ(telemetry.gpu_utilization(), 0.87);
}

TEST(GpuGauge, WithoutADriverNothingIsTold) {
  GpuGauge gauge;
  gauge.Start("GPU-aaaa", "libmt-no-such-driver.so.1");
  megatrain::v1::RankTelemetry telemetry;
  gauge.Fill(&telemetry);
  EXPECT_FALSE(telemetry.has_gpu_utilization());
}

}  // namespace
}  // namespace mt::rank
