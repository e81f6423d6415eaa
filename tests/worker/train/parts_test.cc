// The small parts of the trainer by themselves: words, causes, phases, state in a manifest.
#include <limits>

#include <gtest/gtest.h>

#include "worker/checkpoint/format/manifest.h"
#include "worker/train/command.h"
#include "worker/train/failure.h"
#include "worker/train/phase_clock.h"
#include "worker/train/run_state.h"
#include "worker/train/step_report.h"

namespace mt::train {
namespace {

TEST(CommandWordTest, EveryCombinationComesBack) {
  for (int bits = 0; bits < 8; ++bits) {
    const CommandWord word{.stop_with_save = (bits & 1) != 0,
                           .stop_without_save = (bits & 2) != 0,
                           .checkpoint_now = (bits & 4) != 0};
    EXPECT_EQ(word.Encode(), bits);
    const CommandWord back = CommandWord::Decode(word.Encode());
    EXPECT_EQ(back.stop_with_save, word.stop_with_save);
    EXPECT_EQ(back.stop_without_save, word.stop_without_save);
    EXPECT_EQ(back.checkpoint_now, word.checkpoint_now);
    EXPECT_EQ(back.empty(), bits == 0);
  }
  EXPECT_DEATH(CommandWord::Decode(2.5), "command word");
  EXPECT_DEATH(CommandWord::Decode(8), "command word");
}

TEST(CommandsUnderWayTest, ActedInTheOrderSent) {
  CommandsUnderWay commands;
  commands.Sent(3, "a");
  commands.Sent(4, "b");
  commands.Sent(9, "c");
  EXPECT_TRUE(commands.TakeActed(2).empty());
  EXPECT_EQ(commands.TakeActed(4), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(commands.TakeActed(8).empty());
  EXPECT_EQ(commands.TakeActed(9), (std::vector<std::string>{"c"}));
}

TEST(FailureTest, CausesAndExitCodes) {
  EXPECT_EQ(ExitCodeOf(OkStatus()), 0);
  EXPECT_EQ(CauseOf(OkStatus()), Cause::kNone);
  EXPECT_EQ(ExitCodeOf(base::InvalidArgument("x")), 64);
  EXPECT_EQ(ExitCodeOf(base::NotFound("x")), 64);
  EXPECT_EQ(ExitCodeOf(base::DataLoss("x")), 73);
  EXPECT_EQ(ExitCodeOf(base::Unavailable("x")), 75);
  EXPECT_EQ(ExitCodeOf(base::Internal("x")), 1);
  const Status numeric = WithCause(base::Internal("x"), Cause::kNumeric);
  EXPECT_EQ(ExitCodeOf(numeric), 74);
  EXPECT_EQ(CauseOf(WithCause(numeric, Cause::kUserError)), Cause::kNumeric) << "the first stays";
  EXPECT_TRUE(WithCause(OkStatus(), Cause::kNumeric).ok());
}

TEST(PhaseClockTest, EachMomentBelongsToOnePhase) {
  base::ManualClock clock;
  PhaseClock phases(&clock);
  const auto pass = [&](int ms) { clock.Advance(std::chrono::milliseconds(ms)); };
  phases.Switch(StepPhase::kBackward);
  pass(10);
  const StepPhase interrupted = phases.Switch(StepPhase::kDpComm);
  EXPECT_EQ(interrupted, StepPhase::kBackward);
  pass(3);
  phases.Switch(interrupted);
  pass(5);
  const PhaseSeconds seconds = phases.Take();
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(StepPhase::kBackward)], 0.015);
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(StepPhase::kDpComm)], 0.003);
  EXPECT_EQ(seconds[static_cast<size_t>(StepPhase::kForward)], 0);
  pass(7);
  EXPECT_DOUBLE_EQ(phases.Take()[static_cast<size_t>(StepPhase::kBackward)], 0.007)
      << "the open phase goes on";
}

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
                                 .idx_digest = "00ff"};
  checkpoint::Manifest manifest;
  PutIndexRecord(record, &manifest);
  EXPECT_EQ(manifest.facts.at("data.train.idx_digest"), "00ff");
  EXPECT_EQ(GetIndexRecord(manifest, "train").value(), record);
  EXPECT_EQ(GetIndexRecord(manifest, "valid").status().code(), absl::StatusCode::kDataLoss);
}

TEST(StepReportTest, JudgesSumsAndNotMissingTokens) {
  kernels::EndOfStep v{.sum_squares = 1, .loss = 2, .tokens = 0};
  EXPECT_TRUE(IsFinite(v)) << "a step without tokens is skipped, not spoiled";
  v.nonfinite = 1;
  EXPECT_FALSE(IsFinite(v));
  v.nonfinite = 0;
  v.loss = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(IsFinite(v));
  const Status error = NonfiniteError(12, v);
  EXPECT_EQ(CauseOf(error), Cause::kNumeric);
  EXPECT_NE(base::Message(error).find("step 12"), std::string::npos);
}

TEST(StepReportTest, ResidentMemoryIsThisProcess) { EXPECT_GT(ResidentBytes(), int64_t{1} << 20); }

}  // namespace
}  // namespace mt::train
