// The small parts of the trainer by themselves: words, causes, phases, state in a manifest.
#include <limits>

#include <gtest/gtest.h>

#include "worker/checkpoint/format/manifest.h"
#include "worker/failure/failure.h"
#include "worker/train/command.h"
#include "worker/train/run_state.h"
#include "worker/train/step_report.h"

namespace mt::train {
namespace {

TEST(CommandWordTest, EveryCombinationComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const CommandWord word{.stop_with_save = (bits & 1) != 0,
                           .stop_without_save = (bits & 2) != 0,
                           .checkpoint_now = (bits & 4) != 0,
                           .hold = (bits & 8) != 0,
                           .resume = (bits & 16) != 0,
                           .update = (bits & 32) != 0,
                           .save_due = (bits & 64) != 0,
                           .time_over = (bits & 128) != 0};
    EXPECT_EQ(word.Encode(), bits);
    EXPECT_EQ(CommandWord::Decode(bits), word);
    EXPECT_EQ(word.empty(), bits == 0);
  }
  EXPECT_DEATH(CommandWord::Decode(2.5), "command word");
  EXPECT_DEATH(CommandWord::Decode(256), "command word");
}

TEST(CommandWordTest, EachKindHasItsOwnBit) {
  const std::pair<CommandKind, CommandWord> kinds[] = {
      {CommandKind::kStopWithSave, {.stop_with_save = true}},
      {CommandKind::kStopWithoutSave, {.stop_without_save = true}},
      {CommandKind::kCheckpointNow, {.checkpoint_now = true}},
      {CommandKind::kHold, {.hold = true}},
      {CommandKind::kResume, {.resume = true}},
      {CommandKind::kUpdate, {.update = true}}};
  for (const auto& [kind, expected] : kinds) {
    CommandWord word;
    word.Add(kind);
    EXPECT_EQ(word, expected);
  }
}

TEST(CommandsUnderWayTest, ActedInTheOrderSent) {
  CommandsUnderWay commands;
  commands.Sent(3, {.kind = CommandKind::kHold, .id = "a"});
  commands.Sent(4, {.kind = CommandKind::kUpdate, .id = "b", .settings = RunSettings{}});
  commands.Sent(9, {.kind = CommandKind::kResume, .id = "c"});
  EXPECT_TRUE(commands.TakeActed(2).empty());
  EXPECT_FALSE(commands.UpdateOf(3).has_value());
  EXPECT_EQ(commands.UpdateOf(4), RunSettings{});
  const std::vector<SentCommand> acted = commands.TakeActed(4);
  ASSERT_EQ(acted.size(), 2U);
  EXPECT_EQ(acted[0].command.id, "a");
  EXPECT_EQ(acted[0].step, 3);
  EXPECT_EQ(acted[1].command.id, "b");
  EXPECT_EQ(acted[1].step, 4);
  EXPECT_TRUE(commands.TakeActed(8).empty());
  EXPECT_EQ(commands.TakeActed(9).at(0).command.id, "c");
}

TEST(FailureTest, CausesAndExitCodes) {
  EXPECT_EQ(failure::ExitCodeOf(OkStatus()), 0);
  EXPECT_EQ(failure::CauseOf(OkStatus()), failure::Cause::kNone);
  EXPECT_EQ(failure::ExitCodeOf(base::InvalidArgument("x")), 64);
  EXPECT_EQ(failure::ExitCodeOf(base::NotFound("x")), 64);
  EXPECT_EQ(failure::ExitCodeOf(base::DataLoss("x")), 73);
  EXPECT_EQ(failure::ExitCodeOf(base::Unavailable("x")), 75);
  EXPECT_EQ(failure::ExitCodeOf(base::Internal("x")), 1);
  const Status numeric = failure::WithCause(base::Internal("x"), failure::Cause::kNumeric);
  EXPECT_EQ(failure::ExitCodeOf(numeric), 74);
  EXPECT_EQ(failure::CauseOf(failure::WithCause(numeric, failure::Cause::kUserError)),
            failure::Cause::kNumeric)
      << "the first stays";
  EXPECT_TRUE(failure::WithCause(OkStatus(), failure::Cause::kNumeric).ok());
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

TEST(StepReportTest, ResidentMemoryIsThisProcess) { EXPECT_GT(ResidentBytes(), int64_t{1} << 20); }

}  // namespace
}  // namespace mt::train
