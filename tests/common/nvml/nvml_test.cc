// Facts, readings and failures, through a library that replaces the driver's (fake_driver.cc).
#include "common/nvml/nvml.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace mt::nvml {
namespace {

TEST(Nvml, TellsFactsAndReadingsOfEachGpu) {
  const auto library = Library::Open(MT_FAKE_DRIVER);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->driver_version(), "580.1.2");
  ASSERT_EQ((*library)->num_gpus(), 2);
  const auto gpu = (*library)->Describe(1);
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu->uuid, "GPU-bbbb");
  EXPECT_EQ(gpu->name, "NVIDIA H200");
  EXPECT_EQ(gpu->pci_bus_id, "00000000:2A:00.0");
  EXPECT_EQ(gpu->compute_major, 9);
  EXPECT_EQ(gpu->memory_bytes, 150'000'000'000);
  EXPECT_DOUBLE_EQ(gpu->power_limit_watts, 700);
  EXPECT_EQ(gpu->max_sm_clock_mhz, 1980);
  const auto reading = (*library)->Read(0);
  ASSERT_TRUE(reading.ok());
  EXPECT_EQ(reading->free_bytes, 149'000'000'000);
  EXPECT_EQ(reading->sm_clock_mhz, 1755);
  EXPECT_EQ(reading->memory_clock_mhz, 3201);
  EXPECT_DOUBLE_EQ(reading->power_watts, 412.5);
  EXPECT_DOUBLE_EQ(reading->temperature_celsius, 41);
  EXPECT_DOUBLE_EQ(reading->utilization.value_or(-1), 0.87);
  EXPECT_EQ(reading->throttle_reasons, kThrottlePowerCap);
}

TEST(Nvml, WhatAGpuDoesNotTellIsZero) {
  const auto library = Library::Open(MT_FAKE_DRIVER);
  ASSERT_TRUE(library.ok());
  const auto reading = (*library)->Read(1);
  ASSERT_TRUE(reading.ok());
  EXPECT_EQ(reading->sm_clock_mhz, 0);
  EXPECT_FALSE(reading->utilization) << "0 would be a value";
  EXPECT_DOUBLE_EQ(reading->power_watts, 412.5);
}

TEST(Nvml, TellsWhichGpuIsInMigMode) {
  const auto library = Library::Open(MT_FAKE_DRIVER);
  ASSERT_TRUE(library.ok());
  EXPECT_FALSE((*library)->Describe(0)->in_mig_mode);
  ::setenv("MT_FAKE_NVML", "mig", 1);
  const auto first = (*library)->Describe(0), second = (*library)->Describe(1);
  ::unsetenv("MT_FAKE_NVML");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->in_mig_mode);
  EXPECT_FALSE(second->in_mig_mode) << "a GPU that does not support it";
}

TEST(Nvml, ADriverThatKnowsNoMigModeHasNone) {
  const auto library = Library::Open(MT_OLD_FAKE_DRIVER);
  ASSERT_TRUE(library.ok()) << library.status();
  ::setenv("MT_FAKE_NVML", "mig", 1);
  const auto gpu = (*library)->Describe(0);
  ::unsetenv("MT_FAKE_NVML");
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu->uuid, "GPU-aaaa");
  EXPECT_FALSE(gpu->in_mig_mode);
}

TEST(Nvml, FindsGpusByUuidAndNeighboursByNvLink) {
  const auto library = Library::Open(MT_FAKE_DRIVER);
  ASSERT_TRUE(library.ok());
  EXPECT_EQ((*library)->IndexOf("GPU-bbbb").value(), 1);
  EXPECT_TRUE(absl::IsNotFound((*library)->IndexOf("GPU-cccc").status()));
  EXPECT_TRUE(absl::IsNotFound((*library)->Describe(2).status()));
  EXPECT_TRUE((*library)->HaveNvLink(0, 1));
  EXPECT_FALSE((*library)->HaveNvLink(1, 1));
  EXPECT_FALSE((*library)->HaveNvLink(0, 7));
}

TEST(Nvml, NoDriverABrokenOneAndAnotherLibraryAreTold) {
  const auto none = Library::Open("libmt-no-such-driver.so.1");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_NE(base::Message(none.status()).find("libmt-no-such-driver.so.1"), std::string::npos);
  const auto other = Library::Open("libm.so.6");
  EXPECT_TRUE(absl::IsNotFound(other.status()));
  EXPECT_NE(base::Message(other.status()).find("nvmlInit_v2"), std::string::npos);
  ::setenv("MT_FAKE_NVML", "broken", 1);
  const auto broken = Library::Open(MT_FAKE_DRIVER);
  ::unsetenv("MT_FAKE_NVML");
  EXPECT_TRUE(absl::IsUnavailable(broken.status()));
  EXPECT_NE(base::Message(broken.status()).find("version mismatch"), std::string::npos);
  ::setenv("MT_FAKE_NVML", "unloaded", 1);
  const auto unloaded = Library::Open(MT_FAKE_DRIVER);
  ::unsetenv("MT_FAKE_NVML");
  EXPECT_TRUE(absl::IsNotFound(unloaded.status()));
  EXPECT_NE(base::Message(unloaded.status()).find("Driver Not Loaded"), std::string::npos);
}

}  // namespace
}  // namespace mt::nvml
