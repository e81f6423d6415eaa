// Memory of a GPU: planned to the byte, refused before the first step, enough to the last.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sys/wait.h>

#include "tests/worker/train/gpu_rig.h"

namespace mt::train {
namespace {

using memory::Kind;

class GpuMemoryTest : public GpuTrainTest {
 protected:
  // Some 20 GiB, nearly all of it kept activations.
  static megatrain::v1::JobSpec BigJob(int steps) {
    return GpuJob(Where::kGpu, "heads: 16",
                  {"model.layers=8", "model.hidden_size=1024", "model.seq_length=1024",
                   "training.micro_batch_size=64", "training.global_batch_size=64",
                   "training.precision=bf16", "training.eval.every_iters=4",
                   "training.eval.iters=1", fmt::format("training.train_iters={}", steps)});
  }
  static int64_t Of(const memory::BytesByKind& bytes, Kind kind) {
    return bytes[static_cast<size_t>(kind)];
  }
  static int64_t OnDevice(const memory::BytesByKind& bytes) {
    return memory::Total(bytes) - Of(bytes, Kind::kPinned) - Of(bytes, Kind::kLibraries);
  }
  // Takes what is free, but for this many bytes.
  std::unique_ptr<kernels::DeviceBuffer> LeaveFree(int64_t bytes) {
    const int64_t free = gpu().device().Memory()->free_bytes;
    CHECK_GT(free, bytes);
    return gpu().device().Allocate(free - bytes, kernels::MemoryKind::kDevice);
  }
};

TEST_F(GpuMemoryTest, APlanOf97PercentOfWhatIsFreeRunsAndOneOf101IsRefused) {
  const RankOutcome alone = Run(BigJob(1));
  ASSERT_EQ(alone.seen.steps.size(), 1U);
  const memory::BytesByKind planned = MemoryOf(alone.seen.steps[0]);
  const auto on_device = static_cast<double>(OnDevice(planned));
  ASSERT_GT(0.03 / 0.97 * on_device, static_cast<double>(memory::kLibraryReserveBytes))
      << "the reserve must fit into the 3 %";
  {
    const auto ballast = LeaveFree(static_cast<int64_t>(on_device / 0.97));
    const RankOutcome tight = Run(BigJob(100));
    EXPECT_EQ(tight.seen.steps.size(), 100U);
    EXPECT_EQ(tight.seen.evals.size(), 25U);
    const memory::BytesByKind taken = MemoryOf(tight.seen.steps.back());
    EXPECT_EQ(OnDevice(taken), OnDevice(planned));
    EXPECT_LT(Of(taken, Kind::kLibraries), memory::kLibraryReserveBytes);
    std::printf("planned %.3f GiB, libraries took %.1f MiB more\n", on_device / 0x1p30,
                static_cast<double>(Of(taken, Kind::kLibraries)) / 0x1p20);
  }
  {
    const auto ballast = LeaveFree(static_cast<int64_t>(on_device / 1.01));
    const RankOutcome refused = Run(BigJob(10), /*ends_well=*/false);
    EXPECT_FALSE(refused.created);
    EXPECT_TRUE(refused.seen.steps.empty());
    EXPECT_EQ(failure::CauseOf(refused.result.status), failure::Cause::kOutOfMemory);
    const std::string message = base::Message(refused.result.status);
    const int64_t total = memory::Total(planned) - Of(planned, Kind::kLibraries);
    for (const std::string& part :
         {fmt::format("a rank needs {} bytes", total), std::string("activations "),
          std::string("optimizer "), std::string(" bytes = "), std::string(" more than the "),
          std::string("training.recompute.mode"), std::string("cuda 0"),
          std::string("end what else holds memory of this GPU")}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
    }
  }
  // The refusal has left nothing behind.
  EXPECT_EQ(Run(BigJob(1)).seen.steps.size(), 1U);
}

// What mt-rank, beside this program, says of a GPU whose memory another process (this one) holds.
TEST_F(GpuMemoryTest, AGpuThatAnotherProcessHasFilledIsNamedSo) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mt-rank";
  ASSERT_TRUE(std::filesystem::exists(program)) << program << " belongs beside this program";
  const std::string job = dir_.path() + "/job.yaml";
  std::ofstream(job) << "name: full\nmodel: {layers: 1, hidden_size: 64, heads: 1, seq_length: 16, "
                        "vocab_size: 64}\ndata: {mock: true}\ntraining: {micro_batch_size: 1, "
                        "train_iters: 1}\noptimizer: {lr: 1e-3}\ncheckpoint: {directory: none}\n"
                        "placement: {device: gpu}\n";
  const auto ballast = LeaveFree(int64_t{64} << 20);
  const std::string command = program.string() + " --standalone " + job + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  for (char text[256]; std::fgets(text, sizeof(text), pipe) != nullptr;) said += text;
  const int status = ::pclose(pipe);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 64) << said;
  for (const char* part :
       {"cuda device 0: ", "out of memory", "another process holds this GPU's", "nvidia-smi"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  }
}

TEST_F(GpuMemoryTest, PeaksAreReportedByKind) {
  const int64_t before = gpu().device().Memory()->free_bytes;
  int64_t least = before;
  adjust_ = [&](TrainArgs* args) {
    args->after_step = [&](int64_t, const params::ParamStore&) {
      least = std::min(least, gpu().device().Memory()->free_bytes);
    };
  };
  const RankOutcome run = Run(BigJob(3));
  ASSERT_EQ(run.seen.steps.size(), 3U);
  const memory::BytesByKind bytes = MemoryOf(run.seen.steps.back());
  for (const Kind kind : {Kind::kWeights, Kind::kGradients, Kind::kOptimizer, Kind::kActivations,
                          Kind::kWorkspace, Kind::kPinned}) {
    EXPECT_GT(Of(bytes, kind), 0) << memory::Name(kind);
  }
  // bf16 weights; fp32 gradients; fp32 master and two moments.
  EXPECT_EQ(Of(bytes, Kind::kGradients), 2 * Of(bytes, Kind::kWeights));
  EXPECT_EQ(Of(bytes, Kind::kOptimizer), 6 * Of(bytes, Kind::kWeights));
  // What is missing on the device is what is reported: arenas and libraries, to within granules.
  const int64_t reported = OnDevice(bytes) + Of(bytes, Kind::kLibraries);
  EXPECT_NEAR(static_cast<double>(reported), static_cast<double>(before - least),
              static_cast<double>(int64_t{16} << 20));
  // Nothing stays behind.
  EXPECT_NEAR(static_cast<double>(gpu().device().Memory()->free_bytes), static_cast<double>(before),
              static_cast<double>(memory::kLibraryReserveBytes));
}

}  // namespace
}  // namespace mt::train
