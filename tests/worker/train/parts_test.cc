// The small parts of the trainer by themselves: state in a manifest, the report and the verdict of
// a step.
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/failure/failure.h"
#include "worker/train/run_state.h"
#include "worker/train/step_judge.h"
#include "worker/train/step_report.h"

namespace mt::train {
namespace {

TEST(RunStateTest, ScalarsComeBackBitForBitThroughTheManifestsText) {
  kernels::StepScalars s;
  s.consumed_samples = (int64_t{1} << 53) + 1;
  s.schedule_samples = 12345;
  s.adam_step = 77;
  s.lr = 0.1 + 0.2;
  s.weight_decay = 1.0 / 3.0;
  s.bias_correction1 = 1 - 1e-16;
  s.bias_correction2 = 5e-324;
  s.loss_scale = 4294967296.0;
  s.clean_steps = 3;
  s.hysteresis = 2;
  s.factor = 0.7071067811865475;
  s.grad_norm = std::numeric_limits<double>::quiet_NaN();
  s.skip = 1;
  s.skipped_steps = 9;
  checkpoint::Manifest manifest;
  manifest.spec_json = "{}";
  PutScalars(s, &manifest);
  const auto parsed = checkpoint::ParseManifest(checkpoint::ToJson(manifest));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const kernels::StepScalars back = GetScalars(*parsed).value();
  EXPECT_EQ(back.consumed_samples, s.consumed_samples);
  EXPECT_EQ(back.schedule_samples, s.schedule_samples);
  EXPECT_EQ(back.adam_step, s.adam_step);
  EXPECT_EQ(back.lr, s.lr);
  EXPECT_EQ(back.weight_decay, s.weight_decay);
  EXPECT_EQ(back.bias_correction1, s.bias_correction1);
  EXPECT_EQ(back.bias_correction2, s.bias_correction2);
  EXPECT_EQ(back.loss_scale, s.loss_scale);
  EXPECT_EQ(back.clean_steps, s.clean_steps);
  EXPECT_EQ(back.hysteresis, s.hysteresis);
  EXPECT_EQ(back.factor, s.factor);
  EXPECT_TRUE(std::isnan(back.grad_norm));
  EXPECT_EQ(back.skip, s.skip);
  EXPECT_EQ(back.skipped_steps, s.skipped_steps);

  manifest.reals.erase("factor");
  EXPECT_EQ(GetScalars(manifest).status().code(), absl::StatusCode::kDataLoss);
}

TEST(RunStateTest, IndexRecordComesBack) {
  const data::IndexRecord record{.split_name = "train",
                                 .source = "a/b",
                                 .samples_asked = 160,
                                 .epochs = 3,
                                 .separate_last_epoch = true,
                                 .seed = 1234,
                                 .seq_length = 16,
                                 .split = "969,30,1",
                                 .samples_built = 171,
                                 .idx_digest = "00ff",
                                 .bin_digest = "11ee"};
  checkpoint::Manifest manifest;
  PutIndexRecord(record, &manifest);
  EXPECT_EQ(manifest.facts.at("data.train.idx_digest"), "00ff");
  EXPECT_EQ(GetIndexRecord(manifest, "train").value(), record);
  manifest.facts.erase("data.train.bin_digest");
  ASSERT_TRUE(GetIndexRecord(manifest, "train").ok()) << "older checkpoints have none";
  EXPECT_EQ(GetIndexRecord(manifest, "train")->bin_digest, "");
  EXPECT_EQ(GetIndexRecord(manifest, "valid").status().code(), absl::StatusCode::kDataLoss);
}

TEST(RunStateTest, ABlendsRecordsComeBack) {
  data::IndexRecord blend{.split_name = "train", .samples_asked = 10, .weights = "0.5,2"};
  blend.members = {{.split_name = "train", .source = "a", .idx_digest = "aa"},
                   {.split_name = "train", .source = "b", .epochs = 4, .idx_digest = "bb"}};
  checkpoint::Manifest manifest;
  PutIndexRecord(blend, &manifest);
  EXPECT_EQ(manifest.facts.at("data.train.1.epochs"), "4");
  EXPECT_EQ(GetIndexRecord(manifest, "train").value(), blend);
  manifest.facts.erase("data.train.1.epochs");
  EXPECT_NE(base::Message(GetIndexRecord(manifest, "train").status()).find("data.train.1.epochs"),
            std::string::npos);
  manifest.facts["data.train.members"] = "99999999999";
  EXPECT_EQ(GetIndexRecord(manifest, "train").status().code(), absl::StatusCode::kDataLoss);
}

TEST(StepReportTest, JudgesSumsAndNotMissingTokens) {
  engine::StepVector v{.sums = {.sum_squares = 1, .loss = 2, .tokens = 0}};
  EXPECT_TRUE(IsFinite(v)) << "a step without tokens is skipped, not spoiled";
  v.sums.nonfinite = 1;
  EXPECT_FALSE(IsFinite(v));
  v.sums.nonfinite = 0;
  v.sums.loss = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(IsFinite(v));
  const Status error = NonfiniteError(12, v);
  EXPECT_EQ(failure::CauseOf(error), failure::Cause::kNumeric);
  EXPECT_NE(base::Message(error).find("step 12"), std::string::npos);
}

TEST(StepJudgeTest, AFaultStopsEveryRankAndNamesItsOwn) {
  const StepJudge judge({.stop_at_nonfinite = false});
  engine::StepVector v{.sums = {.loss = std::nan(""), .tokens = 8}, .fault = 2};
  const Status mine = base::DataLoss("shard 3");
  EXPECT_EQ(judge.Judge(7, v, mine), mine);
  const Status other = judge.Judge(7, v, OkStatus());
  EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::Message(other), "step 7: 2 other rank(s) reported a fault; all ranks stop");
  v.fault = 0;
  EXPECT_TRUE(judge.Judge(7, v, OkStatus()).ok()) << "training goes on past such steps";
}

TEST(StepJudgeTest, OverflowIsForTheLossScaleUntilItIsAtItsMinimum) {
  const kernels::LossScaleConstants dynamic{.kind = kernels::LossScaleKind::kDynamic, .min = 4};
  StepJudge judge({.scale = dynamic, .loss_scale = 8});
  engine::StepVector overflow{.sums = {.nonfinite = 1, .loss = 2, .tokens = 8}};
  EXPECT_TRUE(judge.Judge(1, overflow, OkStatus()).ok());
  ASSERT_TRUE(judge.Count(1, {.vector = overflow, .scalars = {.loss_scale = 4, .skip = 1}}).ok());
  EXPECT_EQ(failure::CauseOf(judge.Judge(2, overflow, OkStatus())), failure::Cause::kNumeric);
  ASSERT_TRUE(judge.Count(2, {.vector = overflow, .scalars = {.loss_scale = 8, .skip = 1}}).ok());
  overflow.sums.loss = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(judge.Judge(3, overflow, OkStatus()).ok()) << "no scale of gradients cures a loss";
  const StepJudge fixed({.loss_scale = 8});
  overflow.sums.loss = 2;
  EXPECT_FALSE(fixed.Judge(1, overflow, OkStatus()).ok());
}

// What a step leaves that was skipped, or taken.
engine::StepOutcome SkippedOutcome(double loss, double tokens = 8) {
  return {.vector = {.sums = {.nonfinite = 1, .loss = loss, .tokens = tokens}},
          .scalars = {.skip = 1, .skipped_steps = 5}};
}
engine::StepOutcome TakenOutcome() { return {.vector = {.sums = {.loss = 2, .tokens = 8}}}; }

TEST(StepJudgeTest, SoManySkippedStepsInARowEndTheRun) {
  StepJudge judge({.stop_at_nonfinite = false, .stop_after_skipped = 3});
  for (int64_t step = 1; step <= 2; ++step) ASSERT_TRUE(judge.Count(step, SkippedOutcome(2)).ok());
  ASSERT_TRUE(judge.Count(3, TakenOutcome()).ok());
  for (int64_t step = 4; step <= 5; ++step) ASSERT_TRUE(judge.Count(step, SkippedOutcome(2)).ok());
  EXPECT_TRUE(judge.JudgeEnd(3).ok()) << "fewer than three";
  const Status error = judge.Count(6, SkippedOutcome(16));
  EXPECT_EQ(failure::CauseOf(error), failure::Cause::kNumeric);
  EXPECT_EQ(
      base::Message(error),
      "the last 3 steps, from step 4 to step 6, were all skipped (training.stop_after_skipped "
      "is 3): the weights are those of step 3. 5 of the 6 steps of this run were skipped; in "
      "step 6 the loss was 2, 1 gradient elements were NaN or Inf, and the loss scale was 1. "
      "Train from a checkpoint older than step 3 (checkpoint.load) with a lower optimizer.lr, "
      "a longer optimizer.warmup or a tighter optimizer.clip_grad");
}

TEST(StepJudgeTest, TheEndLooksAtTheStepsSinceTheLastSave) {
  StepJudge judge({.stop_at_nonfinite = false, .stop_after_skipped = 100});
  ASSERT_TRUE(judge.Count(1, TakenOutcome()).ok());
  for (int64_t step = 2; step <= 10; ++step)
    ASSERT_TRUE(judge.Count(step, SkippedOutcome(2, 0)).ok());
  EXPECT_TRUE(judge.JudgeEnd(1).ok()) << "nine may be an accident";
  ASSERT_TRUE(judge.Count(11, SkippedOutcome(0, 0)).ok());
  EXPECT_TRUE(judge.JudgeEnd(0).ok()) << "step 1 was taken since the start";
  for (const int64_t saved : {1, 5, 10}) {
    const Status error = judge.JudgeEnd(saved);
    EXPECT_EQ(failure::CauseOf(error), failure::Cause::kNumeric) << saved;
    EXPECT_NE(base::Message(error).find("No token of these steps counts"), std::string::npos);
  }
  const StepJudge off({.stop_at_nonfinite = false});
  EXPECT_TRUE(off.JudgeEnd(0).ok());
}

TEST(StepReportTest, MappedFilesAreNotMemoryOfThisProcess) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  const std::string path = testing::TempDir() + "/mt-mapped-" + std::to_string(::getpid());
  {
    std::ofstream file(path);
    file << std::string(kBytes, 'x');
  }
  const ResidentMemory before = ReadResidentMemory();
  EXPECT_GT(before.own_bytes, int64_t{1} << 18);
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fd);
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const ResidentMemory with_file = ReadResidentMemory();
  ::munmap(mapped, kBytes);
  EXPECT_GE(with_file.mapped_file_bytes - before.mapped_file_bytes, kBytes);
  EXPECT_LT(with_file.own_bytes - before.own_bytes, kBytes / 4);
  const std::string own(kBytes, 'y');
  const ResidentMemory with_own = ReadResidentMemory();
  EXPECT_GE(with_own.own_bytes - before.own_bytes, kBytes / 2) << own.size();
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace mt::train
