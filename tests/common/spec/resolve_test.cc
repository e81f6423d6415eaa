// What the placement decides: device, precision, threads.
#include <string>

#include <gtest/gtest.h>

#include "common/spec/validate.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

TEST(Resolve, FillsWhatThePlacementDecides) {
  Loaded loaded = Load();
  EXPECT_TRUE(ResolveForSlots({.cores_per_node = 16, .slots_per_node = 3}, &loaded.job).empty());
  EXPECT_EQ(loaded.job.placement().device(), v1::Placement::DEVICE_CPU);
  EXPECT_EQ(loaded.job.training().precision(), v1::Training::PRECISION_FP32);
  EXPECT_EQ(loaded.job.placement().threads_per_rank(), 5);
  EXPECT_TRUE(ResolveForSlots({.cores_per_node = 64, .slots_per_node = 1}, &loaded.job).empty());
  EXPECT_EQ(loaded.job.placement().threads_per_rank(), 5);  // kept for the life of the job
  Loaded small = Load();
  EXPECT_TRUE(ResolveForSlots({.cores_per_node = 2, .slots_per_node = 8}, &small.job).empty());
  EXPECT_EQ(small.job.placement().threads_per_rank(), 1);
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = true}, &small.job)),
            "placement.device: the job asks for cpu slots, the node has gpu slots");
}

TEST(Resolve, DeviceAndPrecisionWaitForThePlacement) {
  Loaded loaded = Load({"parallel.data=1"});
  ASSERT_EQ(FormatFaults(loaded.faults), "");
  EXPECT_FALSE(loaded.job.placement().has_device());
  EXPECT_FALSE(loaded.job.training().has_precision());
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = true}, &loaded.job)), "");
  EXPECT_EQ(loaded.job.placement().device(), v1::Placement::DEVICE_GPU);
  EXPECT_EQ(loaded.job.training().precision(), v1::Training::PRECISION_BF16);
  // Threads per rank exist on CPU slots only.
  EXPECT_FALSE(loaded.job.placement().has_threads_per_rank());
  // Decisions stand when a rank completes the job again.
  EXPECT_EQ(FormatFaults(CompleteJob({}, &loaded.job)), "");
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = true}, &loaded.job)), "");
  const Loaded asked = Load({"placement.device=gpu", "parallel.data=1"});
  ASSERT_EQ(FormatFaults(asked.faults), "");
  EXPECT_EQ(asked.job.training().precision(), v1::Training::PRECISION_BF16);
}

TEST(Resolve, Fp64IsForCpuSlots) {
  constexpr char kRefused[] =
      "training.precision: fp64 runs on CPU slots only; use fp32 or bf16, or device cpu";
  EXPECT_EQ(FaultsOf({"training.precision=fp64", "placement.device=gpu", "parallel.data=1"}),
            kRefused);
  // Reported also where GPUs are refused anyway.
  EXPECT_EQ(FaultsOf({"training.precision=fp64", "placement.device=gpu"}, {.cuda = false}),
            std::string("placement.device: gpu is not supported yet; supported: cpu\n") + kRefused);
  // With device auto the precision already decides.
  const Loaded doubles = Load({"training.precision=fp64"});
  ASSERT_EQ(FormatFaults(doubles.faults), "");
  EXPECT_EQ(doubles.job.placement().device(), v1::Placement::DEVICE_CPU);
}

TEST(Resolve, SeveralRanksMayHaveAGpuEach) {
  EXPECT_EQ(FaultsOf({"placement.device=gpu", "parallel.data=2"}), "");
  Loaded waiting = Load({"parallel={tensor: 2, pipeline: 2, data: 1}"});
  ASSERT_EQ(FormatFaults(waiting.faults), "");
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = true}, &waiting.job)), "");
  EXPECT_EQ(waiting.job.placement().device(), v1::Placement::DEVICE_GPU);
}

TEST(Resolve, ThreadsAreOfCpuSlots) {
  constexpr char kRefused[] =
      "placement.threads_per_rank: is for CPU slots, and this job runs on a GPU; leave it out, or "
      "use device cpu";
  EXPECT_EQ(FaultsOf({"placement.device=gpu", "placement.threads_per_rank=2", "parallel.data=1"}),
            kRefused);
  Loaded waiting = Load({"placement.threads_per_rank=2", "parallel.data=1"});
  ASSERT_EQ(FormatFaults(waiting.faults), "");
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = true}, &waiting.job)), kRefused);
}

}  // namespace
}  // namespace mt::spec
