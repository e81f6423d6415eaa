// Faults of a GPU end a run with a message that names device, call and step; and what a GPU cannot
// do is refused before anything runs.
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/module.h"
#include "tests/worker/train/gpu_rig.h"

namespace mt::train {
namespace {

class GpuFaultTest : public GpuTrainTest {
 protected:
  // In step 3 a kernel writes where no memory is, which ends the device's context. Leaves the
  // process with the rank's code, since nothing on this GPU can run in it any more.
  [[noreturn]] void RunIntoAFault() {
    adjust_ = [this](TrainArgs* args) {
      args->end_of_step = [this](int64_t step, engine::StepVector* /*mine*/) {
        if (step != 3) return;
        static const auto stream =
            gpu().device().CreateStream(kernels::StreamPriority::kLow).release();
        // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is nobody's
        gpu().vector().Fill(*stream, {reinterpret_cast<void*>(4096), kernels::DType::kF32, {4096}},
                            1);
      };
    };
    const RankOutcome outcome =
        Run(GpuJob(Where::kGpu, kGptLike, {"training.precision=bf16"}), /*ends_well=*/false);
    std::fprintf(stderr, "%s\n", base::Message(outcome.result.status).c_str());
    std::_Exit(failure::CauseOf(outcome.result.status) == failure::Cause::kHardware ? 71 : 1);
  }
};

TEST_F(GpuFaultTest, AStickyErrorNamesDeviceCallAndStep) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunIntoAFault(), ::testing::ExitedWithCode(71),
              "in step [345] \\(results are known up to step [0-3]\\): device: cuda device 0: "
              ".*illegal memory access");
}

TEST_F(GpuFaultTest, AnUnknownGpuIsRefusedWithThoseThatThereAre) {
  const auto backend =
      kernels::cuda::LoadCudaBackend({.uuid = "GPU-00000000-0000-0000-0000-000000000000"});
  ASSERT_FALSE(backend.ok());
  const std::string message = base::Message(backend.status());
  EXPECT_NE(message.find("no GPU GPU-00000000-0000-0000-0000-000000000000"), std::string::npos)
      << message;
  // It lists the UUIDs of this process' GPUs: each of them makes a backend.
  const size_t at = message.find("GPU-", message.find("this process sees"));
  ASSERT_NE(at, std::string::npos) << message;
  const std::string uuid = message.substr(at, 40);
  EXPECT_TRUE(kernels::cuda::LoadCudaBackend({.uuid = uuid}).ok()) << uuid;
}

TEST_F(GpuFaultTest, WhatKernelsCannotDoIsRefusedWhenPlanned) {
  megatrain::v1::JobSpec job = GpuJob(Where::kGpu, "heads: 2, head_dim: 264",
                                      {"training.precision=bf16", "model.hidden_size=256"});
  RankOutcome outcome = Run(job, /*ends_well=*/false);
  EXPECT_FALSE(outcome.created);
  EXPECT_EQ(failure::CauseOf(outcome.result.status), failure::Cause::kUserError);
  EXPECT_NE(base::Message(outcome.result.status).find("model.head_dim: 264, on a GPU at most 256"),
            std::string::npos)
      << outcome.result.status;
  job.mutable_training()->set_precision(megatrain::v1::Training::PRECISION_FP64);
  outcome = Run(job, /*ends_well=*/false);
  EXPECT_EQ(failure::CauseOf(outcome.result.status), failure::Cause::kUserError);
  EXPECT_NE(base::Message(outcome.result.status).find("fp64"), std::string::npos);
}

}  // namespace
}  // namespace mt::train
