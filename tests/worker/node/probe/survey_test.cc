// The GPUs that mt-gpu-probe reports, through a fake driver library.
#include "worker/node/probe/survey.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/nvml/nvml.h"

namespace mt::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(VisibleGpus, AreReadAsTheRuntimeReadsThem) {
  const std::vector<std::string> uuids = {"GPU-aaaa1111", "GPU-aabb2222", "GPU-cccc3333"};
  const auto visible = [&uuids](const char* setting) { return VisibleGpus(setting, uuids); };
  EXPECT_THAT(visible(nullptr), ElementsAre(0, 1, 2));
  EXPECT_THAT(visible(""), IsEmpty());
  EXPECT_THAT(visible("1"), ElementsAre(1));
  EXPECT_THAT(visible("2, 0"), ElementsAre(0, 2));
  EXPECT_THAT(visible("-1"), IsEmpty());
  EXPECT_THAT(visible("NoDevFiles"), IsEmpty());
  // Entries from the first invalid one on are ignored.
  EXPECT_THAT(visible("0,3,1"), ElementsAre(0));
  EXPECT_THAT(visible("0,0,1"), ElementsAre(0));
  EXPECT_THAT(visible("2,x"), ElementsAre(2));
  EXPECT_THAT(visible("1,"), ElementsAre(1));
  EXPECT_THAT(visible("GPU-cccc3333,GPU-aabb2222"), ElementsAre(1, 2));
  EXPECT_THAT(visible("GPU-aab"), ElementsAre(1));
  EXPECT_THAT(visible("GPU-aa"), IsEmpty()) << "ambiguous";
  EXPECT_THAT(visible("MIG-aaaa"), IsEmpty());
  // A GPU without a UUID still has its ordinal.
  EXPECT_THAT(VisibleGpus("1", {"GPU-a", "", "GPU-c"}), ElementsAre(1));
}

TEST(Sysfs, NodesOfMemory) {
  EXPECT_EQ(SysfsBusId("00000000:18:00.0"), "0000:18:00.0");
  EXPECT_EQ(SysfsBusId("00000000:2A:00.0"), "0000:2a:00.0");
  EXPECT_EQ(SysfsBusId("00010000:2A:00.0"), "00010000:2a:00.0");
  EXPECT_EQ(SysfsBusId(""), "");
  char pattern[] = "/tmp/mt-probe-sysfs-XXXXXX";
  const std::string sysfs = mkdtemp(pattern);
  const std::string device = sysfs + "/bus/pci/devices/0000:18:00.0";
  std::filesystem::create_directories(device);
  std::ofstream(device + "/numa_node") << "1\n";
  EXPECT_EQ(NumaNodeOf("0000:18:00.0", sysfs), 1);
  EXPECT_EQ(NumaNodeOf("0000:19:00.0", sysfs), -1);
  std::ofstream(device + "/numa_node") << "-1\n";
  EXPECT_EQ(NumaNodeOf("0000:18:00.0", sysfs), -1);
  std::filesystem::remove_all(sysfs);
}

TEST(Survey, TellsEachGpu) {
  char pattern[] = "/tmp/mt-probe-survey-XXXXXX";
  const std::string sysfs = mkdtemp(pattern);
  std::filesystem::create_directories(sysfs + "/bus/pci/devices/0000:2a:00.0");
  std::ofstream(sysfs + "/bus/pci/devices/0000:2a:00.0/numa_node") << "1\n";
  const auto library = nvml::Library::Open(MT_FAKE_DRIVER);
  ASSERT_TRUE(library.ok()) << library.status();
  const GpuInventory found = SurveyGpus(**library, nullptr, sysfs);
  std::filesystem::remove_all(sysfs);
  EXPECT_EQ(found.driver_version, "580.1.2");
  ASSERT_EQ(found.devices.size(), 2U);
  const GpuDevice& gpu = found.devices[1];
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(gpu.uuid, "GPU-bbbb");
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.memory_bytes, 150'000'000'000);
  EXPECT_EQ(gpu.free_bytes, 149'000'000'000);
  EXPECT_EQ(gpu.compute_capability, "9.0");
  EXPECT_EQ(gpu.pci_bus_id, "0000:2a:00.0");
  EXPECT_EQ(gpu.numa_node, 1);
  EXPECT_DOUBLE_EQ(gpu.power_limit_watts, 700);
  EXPECT_THAT(gpu.nvlink_peers, ElementsAre("GPU-aaaa"));
  EXPECT_EQ(gpu.error, "");
  EXPECT_EQ(found.devices[0].numa_node, -1);
}

TEST(Survey, LeavesOutWhatIsNotVisible) {
  const auto library = nvml::Library::Open(MT_FAKE_DRIVER);
  ASSERT_TRUE(library.ok());
  const GpuInventory found = SurveyGpus(**library, "GPU-bb");
  ASSERT_EQ(found.devices.size(), 1U);
  EXPECT_EQ(found.devices[0].index, 1);
  EXPECT_THAT(found.devices[0].nvlink_peers, IsEmpty());
  EXPECT_THAT(SurveyGpus(**library, "").devices, IsEmpty());
}

// Surveys the replaced driver in this state.
GpuInventory SurveyOf(const char* state) {
  const auto library = nvml::Library::Open(MT_FAKE_DRIVER);
  ::setenv("MT_FAKE_NVML", state, 1);
  GpuInventory found = SurveyGpus(*library.value(), nullptr);
  ::unsetenv("MT_FAKE_NVML");
  return found;
}

TEST(Survey, ASickGpuIsListedWithItsError) {
  const GpuInventory found = SurveyOf("sick");
  ASSERT_EQ(found.devices.size(), 2U);
  EXPECT_EQ(found.devices[0].error, "");
  EXPECT_THAT(found.devices[0].nvlink_peers, IsEmpty());
  EXPECT_THAT(found.devices[1].error, HasSubstr("GPU is lost"));
  EXPECT_EQ(found.devices[1].uuid, "");
}

TEST(Survey, AGpuInMigModeIsListedWithWhatToDo) {
  const GpuInventory found = SurveyOf("mig");
  ASSERT_EQ(found.devices.size(), 2U);
  EXPECT_EQ(found.devices[0].uuid, "GPU-aaaa");
  EXPECT_EQ(found.devices[0].error,
            "GPU 0 (GPU-aaaa) is in MIG mode: not offered; disable it (nvidia-smi -i GPU-aaaa -mig "
            "0) and start the worker again, or leave this GPU out of --gpus");
  EXPECT_EQ(found.devices[1].error, "");
}

TEST(Survey, AGpuThatTheBackendIsNotBuiltForIsListedWithWhatToDo) {
  const GpuInventory found = SurveyOf("unfit");
  ASSERT_EQ(found.devices.size(), 2U);
  EXPECT_EQ(found.devices[0].compute_capability, "7.5");
  EXPECT_EQ(found.devices[0].error,
            "GPU 0 (GPU-aaaa) has compute capability 7.5; the CUDA backend is built for 8.x and "
            "9.0: not offered; leave it out of --gpus, or start the worker with --gpus none");
  EXPECT_EQ(found.devices[1].error, "");
}

TEST(Document, SaysTheSameAtBothEnds) {
  GpuInventory inventory{.driver_version = "580.1", .error = "", .devices = {}};
  inventory.devices.push_back({.index = 3,
                               .uuid = "GPU-1",
                               .name = "a \"quoted\" name",
                               .memory_bytes = int64_t{1} << 37,
                               .free_bytes = 12,
                               .compute_capability = "9.0",
                               .pci_bus_id = "0000:18:00.0",
                               .numa_node = 1,
                               .nvlink_peers = {"GPU-2", "GPU-3"},
                               .power_limit_watts = 699.5,
                               .error = "lost"});
  const auto read = GpuInventoryFromJson(ToJson(inventory));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(inventory));
  EXPECT_EQ(read->devices[0].nvlink_peers, inventory.devices[0].nvlink_peers);
  EXPECT_EQ(read->devices[0].memory_bytes, int64_t{1} << 37);
  for (const char* bad : {"", "[]", "{}", "{\"driver_version\": 1}", "{\"driver_version\": \"1\"",
                          "{\"driver_version\": \"1\", \"error\": \"\", \"devices\": [1]}"}) {
    EXPECT_TRUE(absl::IsDataLoss(GpuInventoryFromJson(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace mt::node
