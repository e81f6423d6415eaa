// Checkpoints of a run on a GPU: nothing is lost on the way through pinned memory and the disk, and
// they are the CPU's too.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

#include "common/base/files.h"
#include "tests/worker/train/gpu_rig.h"
#include "worker/checkpoint/format/whole_manifest.h"

namespace mt::train {
namespace {

class GpuStateTest : public GpuTrainTest {
 protected:
  // Digests of all tensors of a checkpoint.
  std::map<std::string, std::string> Digests(const std::string& directory, int64_t step) const {
    const std::string path = base::JoinPath(dir_.path(), "checkpoints/" + directory);
    std::map<std::string, std::string> digests;
    const auto all = checkpoint::ListCheckpoints(path).value();
    for (const checkpoint::CheckpointId& id : all) {
      if (id.step != step) continue;
      const checkpoint::Manifest manifest = checkpoint::ReadWholeManifest(path, id).value();
      for (const auto& [key, tensor] : manifest.tensors) {
        for (const auto& slice : tensor.slices) {
          for (const auto& digest : slice.digests)
            digests[key + slice.tensor] += base::HexOf(digest);
        }
      }
    }
    EXPECT_FALSE(digests.empty()) << directory << " has no step " << step;
    return digests;
  }
  static std::vector<StepRecord> From(const std::vector<StepRecord>& steps, size_t first) {
    return {steps.begin() + static_cast<int64_t>(first), steps.end()};
  }
};

TEST_F(GpuStateTest, ResumedIsTheSameToTheLastBit) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const std::vector<std::string> fields = {std::string("training.precision=") + precision,
                                             "training.deterministic=true",
                                             "training.micro_batch_size=4"};
    const std::string one = std::string("straight-") + precision, two = precision;
    const RankOutcome straight = Run(Where::kGpu, kLlamaLike, Joined(fields, SavesTo(one, 20)));
    Run(Where::kGpu, kLlamaLike,
        Joined(Joined(fields, SavesTo(two, 20)), {"training.exit_at_iter=10"}));
    const RankOutcome resumed = Run(Where::kGpu, kLlamaLike, Joined(fields, SavesTo(two, 20)));
    ASSERT_EQ(resumed.seen.infos.at(0).resumed_from_step, 10);
    ExpectEqualCurve(resumed.seen.steps, From(straight.seen.steps, 10));
    EXPECT_EQ(Digests(two, 20), Digests(one, 20)) << precision;
  }
}

TEST_F(GpuStateTest, StateCrossesFromOneDeviceToTheOtherBitForBit) {
  adjust_ = [](TrainArgs* args) {  // one job, which ends at once where it has reached its exit
    args->job_uid = "job";
    args->epoch = 1;
  };
  for (const auto& [from, to] :
       {std::pair(Where::kCpu, Where::kGpu), std::pair(Where::kGpu, Where::kCpu)}) {
    for (const std::string_view model : {kGptLike, kHeads100}) {
      const std::string name =
          std::string(from == Where::kCpu ? "cpu" : "gpu") + (model == kHeads100 ? "-padded" : "");
      const std::vector<std::string> fields = {"training.precision=bf16",
                                               "training.exit_at_iter=5"};
      Run(from, model, Joined(fields, SavesTo(name, 5)));
      // Ends at once, with a save of what it has loaded.
      Run(to, model,
          Joined(Joined(fields, SavesTo(name + "-copy", 5)), {"checkpoint.load=" + name}));
      EXPECT_EQ(Digests(name + "-copy", 5), Digests(name, 5)) << model;
    }
  }
}

// Commands nothing: with saves after every fifth step, its polls two steps before the next one is
// due wait until the one before is over, for a minute at most.
class SaveAwaiter final : public CommandSource {
 public:
  void AddOver() { ++over_; }
  std::optional<Command> Poll() override {
    ++polls_;  // with each step
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (polls_ % 5 == 3 && over_ < polls_ / 5 && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::nullopt;
  }

 private:
  std::atomic<int64_t> over_ = 0;
  int64_t polls_ = 0;
};

TEST_F(GpuStateTest, ASaveBesideTrainingStoresWhatABlockingOneDoes) {
  for (const std::string_view model : {kGptLike, kHeads100}) {
    const std::string suffix = model == kHeads100 ? "-padded" : "";
    const std::vector<std::string> fields = {
        "training.precision=bf16", "training.deterministic=true", "checkpoint.keep_last=9"};
    const RankOutcome blocking =
        Run(Where::kGpu, model, Joined(fields, SavesTo("blocking" + suffix, 5)));
    // The copy begins late, and each save has ended before the next one is due.
    SaveAwaiter awaiter;
    adjust_ = [&awaiter](TrainArgs* args) {
      args->commands = &awaiter;
      args->host_delay = std::chrono::milliseconds(50);
      args->checkpoint_failpoint = [&awaiter](std::string_view point) {
        if (point == "copy") std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (point == "over") awaiter.AddOver();
        return OkStatus();
      };
    };
    const RankOutcome beside =
        Run(Where::kGpu, model,
            Joined(Joined(fields, SavesTo("beside" + suffix, 5)), {"checkpoint.async_save=true"}));
    adjust_ = nullptr;
    ExpectEqualCurve(beside.seen.steps, blocking.seen.steps);
    ASSERT_EQ(beside.seen.saves.size(), 4U);
    for (const int64_t step : {5, 10, 15, 20})
      EXPECT_EQ(Digests("beside" + suffix, step), Digests("blocking" + suffix, step)) << step;
  }
}

TEST_F(GpuStateTest, ARunGoesOnOnTheOtherDevice) {
  const std::vector<std::string> fields = {"training.precision=fp32"};
  const RankOutcome cpu = Run(Where::kCpu, kGptLike, fields);
  for (const auto& [from, to] :
       {std::pair(Where::kCpu, Where::kGpu), std::pair(Where::kGpu, Where::kCpu)}) {
    const std::string name = from == Where::kCpu ? "moved-to-gpu" : "moved-to-cpu";
    const std::vector<std::string> saves = Joined(fields, SavesTo(name, 10));
    Run(from, kGptLike, Joined(saves, {"training.exit_at_iter=10"}));
    const RankOutcome resumed = Run(to, kGptLike, saves);
    ASSERT_EQ(resumed.seen.infos.at(0).resumed_from_step, 10);
    ExpectSameCurve(resumed.seen.steps, From(cpu.seen.steps, 10), 1e-4, 1e-3);
  }
}

}  // namespace
}  // namespace mt::train
