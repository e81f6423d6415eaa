// The GPUs that a worker offers, the number of CPU slots beside them, and the cores of their ranks.
#include "worker/node/gpus/gpu_offer.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "worker/node/gpus/numa.h"

namespace mt::node {
namespace {

GpuInventory TwoGpus() {
  GpuInventory found{.driver_version = "580", .error = {}, .devices = {}};
  found.devices.push_back({.index = 0, .uuid = "GPU-a", .numa_node = 1});
  found.devices.push_back({.index = 1, .uuid = "GPU-b"});
  return found;
}

std::string NodeCores(int numa_node) { return numa_node == 1 ? "4-7" : ""; }

TEST(GpuOffer, EveryGpuThatAnswers) {
  const GpuOffer offer = OfferGpus("all", TwoGpus(), NodeCores);
  ASSERT_EQ(offer.gpus.size(), 2U);
  EXPECT_EQ(offer.gpus[0].device.uuid, "GPU-a");
  EXPECT_EQ(offer.gpus[0].cpus, "4-7");
  EXPECT_EQ(offer.gpus[1].cpus, "");
  EXPECT_EQ(offer.driver_version, "580");
  EXPECT_EQ(offer.problem, "");
  EXPECT_EQ(DefaultCpuSlots(offer, 16), 0);
}

TEST(GpuOffer, ThoseThatAreWanted) {
  const GpuOffer one = OfferGpus("GPU-b", TwoGpus(), NodeCores);
  ASSERT_EQ(one.gpus.size(), 1U);
  EXPECT_EQ(one.gpus[0].device.uuid, "GPU-b");
  EXPECT_EQ(one.problem, "");
  const GpuOffer absent = OfferGpus("GPU-b,GPU-c", TwoGpus(), NodeCores);
  EXPECT_EQ(absent.gpus.size(), 1U);
  EXPECT_EQ(absent.problem, "GPU-c of --gpus was not found");
  const GpuOffer none = OfferGpus("none", TwoGpus(), NodeCores);
  EXPECT_TRUE(none.gpus.empty());
  EXPECT_EQ(none.problem, "");
  EXPECT_EQ(DefaultCpuSlots(none, 16), 16);
}

TEST(GpuOffer, ASickGpuIsNamedAndNotOffered) {
  GpuInventory found = TwoGpus();
  found.devices[0].error = "GPU 0: GPU is lost";
  const GpuOffer offer = OfferGpus("all", found, NodeCores);
  ASSERT_EQ(offer.gpus.size(), 1U);
  EXPECT_EQ(offer.gpus[0].device.uuid, "GPU-b");
  EXPECT_EQ(offer.problem, "GPU 0: GPU is lost");
}

TEST(GpuOffer, NoDriverIsInOrderASickOneIsNot) {
  const GpuOffer none = OfferGpus("all", base::NotFound("no NVIDIA driver"), NodeCores);
  EXPECT_EQ(none.problem, "");
  EXPECT_EQ(DefaultCpuSlots(none, 16), 16);
  const GpuOffer sick = OfferGpus("all", base::Unavailable("nvmlInit: mismatch"), NodeCores);
  EXPECT_TRUE(sick.gpus.empty());
  EXPECT_EQ(sick.problem, "nvmlInit: mismatch");
  // Work that was meant for its GPUs does not silently go to its cores.
  EXPECT_EQ(DefaultCpuSlots(sick, 16), 0);
  EXPECT_EQ(OfferGpus("GPU-a", base::NotFound("no NVIDIA driver"), NodeCores).problem,
            "no NVIDIA driver");
}

TEST(GpuOffer, WithoutTheModuleNoneAndWhy) {
  const Status missing = base::NotFound("no module at /x, /y; install it there");
  const GpuOffer offer = OfferGpus("all", NeedModule(TwoGpus(), missing), NodeCores);
  EXPECT_TRUE(offer.gpus.empty());
  EXPECT_EQ(offer.problem,
            "2 GPUs found, but ranks could not use them: no module at /x, /y; install it there; or "
            "start the worker with --gpus none");
  EXPECT_EQ(DefaultCpuSlots(offer, 16), 0);
  EXPECT_EQ(OfferGpus("GPU-b", NeedModule(TwoGpus(), missing), NodeCores).problem, offer.problem);
  EXPECT_EQ(OfferGpus("all", NeedModule(TwoGpus(), OkStatus()), NodeCores).gpus.size(), 2U);
  // A host without GPUs needs no module.
  const GpuInventory none{.driver_version = "580", .error = {}, .devices = {}};
  EXPECT_EQ(OfferGpus("all", NeedModule(none, missing), NodeCores).problem, "");
  EXPECT_EQ(
      OfferGpus("all", NeedModule(base::NotFound("no NVIDIA driver"), missing), NodeCores).problem,
      "");
}

TEST(CpuList, ReadsAndWritesWhatTheKernelDoes) {
  for (const char* text : {"0", "0-3", "0-3,8,10-11", "5,7"}) {
    EXPECT_EQ(FormatCpuList(ParseCpuList(text)), text);
  }
  EXPECT_EQ(FormatCpuList(ParseCpuList("1,0\n")), "0-1");
  for (const char* bad : {"", "x", "3-1", "1-", "1,,2", "-1", "99999999", "1 2"}) {
    EXPECT_EQ(FormatCpuList(ParseCpuList(bad)), "") << bad;
  }
}

TEST(CpuList, ThoseOfANodeThatMayBeUsed) {
  char pattern[] = "/tmp/mt-agent-sysfs-XXXXXX";
  const std::string sysfs = mkdtemp(pattern);
  std::filesystem::create_directories(sysfs + "/devices/system/node/node1");
  std::ofstream(sysfs + "/devices/system/node/node1/cpulist") << "4-7,12-15\n";
  EXPECT_EQ(CpusOfNode(1, ParseCpuList("0-13"), sysfs), "4-7,12-13");
  EXPECT_EQ(CpusOfNode(1, ParseCpuList("0-3"), sysfs), "");
  EXPECT_EQ(CpusOfNode(0, ParseCpuList("0-13"), sysfs), "");
  EXPECT_EQ(CpusOfNode(-1, ParseCpuList("0-13"), sysfs), "");
  std::filesystem::remove_all(sysfs);
  EXPECT_NE(FormatCpuList(OwnCpus()), "");
}

}  // namespace
}  // namespace mt::node
