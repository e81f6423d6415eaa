// The lines of steps and evaluations in a rank's log, in our own format and in Megatron-LM's.
#include "worker/rank/step_log.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/log.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/step.pb.h"

namespace mt::rank {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kStepLogJob[] = R"(
name: tiny
model: {layers: 2, hidden_size: 16, heads: 4, seq_length: 16, vocab_size: 128}
data: {mock: true}
training: {micro_batch_size: 1, global_batch_size: 8, batch_ramp: "4,4,8", train_samples: 64, log_every: 2}
optimizer: {lr: 1e-3}
telemetry: {log_format: )";

// A run of five steps (4, 4, 8, 8 and 8 samples; the third one is skipped) with an evaluation, as
// lines of its log.
std::vector<std::string> LogOf(const std::string& format) {
  megatrain::v1::JobSpec job;
  EXPECT_EQ(spec::ToStatus(spec::LoadJob(kStepLogJob + format + "}\n", {}, {}, &job)), OkStatus());
  EXPECT_EQ(spec::ToStatus(spec::ResolveForSlots({}, &job)), OkStatus());
  testing::internal::CaptureStderr();
  StepLog log(job, nullptr);
  log.OnRunInfo({.total_steps = 5});
  int64_t samples = 0;
  for (int64_t step = 1; step <= 5; ++step) {
    samples += step <= 2 ? 4 : 8;
    megatrain::v1::StepRecord record;
    record.set_step(step);
    record.set_loss(static_cast<double>(step));
    record.set_consumed_samples(samples);
    record.set_skipped(step == 3);
    record.set_step_seconds(0.5);
    log.OnStep(record);
  }
  log.OnEval({.step = 5, .loss = 2, .split = "valid", .final = true});
  log::Flush();
  std::vector<std::string> lines;
  std::istringstream text(testing::internal::GetCapturedStderr());
  for (std::string line; std::getline(text, line);) {
    const bool of_setup = line.find(" training ") != std::string::npos ||
                          line.find("how much the run reads") != std::string::npos;
    if (!of_setup) lines.push_back(line);
  }
  return lines;
}

TEST(StepLogTest, KeyValueLinesAtTheIntervalAndOfSkippedSteps) {
  EXPECT_THAT(LogOf("kv"),
              ElementsAre(HasSubstr(" 2 step done loss=2.000000"), HasSubstr("loss=3.000000"),
                          HasSubstr("loss=4.000000"), HasSubstr("loss=5.000000"),
                          HasSubstr("evaluated split=valid at_step=5 loss=2.000000")));
}

TEST(StepLogTest, MegatronsLinesAtTheIntervalAndAtTheEnd) {
  EXPECT_THAT(
      LogOf("megatron"),
      ElementsAre(
          AllOf(StartsWith(" [1970-01-01 00:00:00.000000] iteration        2/       5 | consumed "
                           "samples:            8 | elapsed time per iteration (ms): 500.0 | "),
                HasSubstr("| global batch size:     4 | lm loss: 1.500000E+00 |"),
                HasSubstr("| number of skipped iterations:   0 |")),
          AllOf(HasSubstr(" iteration        4/       5 | consumed samples:           24 |"),
                HasSubstr("| global batch size:     8 | lm loss: 4.000000E+00 |"),
                HasSubstr("| number of skipped iterations:   1 |")),
          AllOf(HasSubstr(" iteration        5/       5 | "), Not(HasSubstr("step done"))),
          StartsWith("------"),
          " validation loss at iteration 5 on validation set | lm loss value: 2.000000E+00 | lm "
          "loss PPL: 7.389056E+00 | ",
          StartsWith("------")));
}

}  // namespace
}  // namespace mt::rank
