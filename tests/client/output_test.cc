// What mtctl prints: figures, tables, JSON, the live line; exit codes.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/output/format.h"
#include "client/output/json.h"
#include "client/output/live_line.h"
#include "client/session/exit_code.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

TEST(FormatTest, Figures) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(FormatDuration(0), "0s");
  EXPECT_EQ(FormatDuration(59.6), "1m00s");
  EXPECT_EQ(FormatDuration(7620), "2h07m");
  EXPECT_EQ(FormatDuration(90000), "1d01h");
  EXPECT_EQ(FormatDuration(-1), "-");
  EXPECT_EQ(FormatDuration(std::nan("")), "-");
  EXPECT_EQ(FormatRate(999.4), "999");
  EXPECT_EQ(FormatRate(12345), "12.3k");
  EXPECT_EQ(FormatRate(2.5e6), "2.50M");
  EXPECT_EQ(FormatAge(0, 5), "-");
  EXPECT_EQ(FormatAge(1'000'000, 61'000'000), "1m00s");
}

TEST(FormatTest, TableAlignsColumnsWithoutTrailingSpaces) {
  EXPECT_EQ(Table({{"NAME", "STATE"}, {"a-long-name", "Q"}, {"b", ""}}),
            "NAME         STATE\na-long-name  Q\nb\n");
}

TEST(FormatTest, StoppingNamesItsGoal) {
  v1::Job job;
  job.set_state(v1::STOPPING);
  job.set_stopping_to(v1::FAILED);
  EXPECT_EQ(StateText(job), "STOPPING(FAILED)");
  job.set_state(v1::RUNNING);
  EXPECT_EQ(StateText(job), "RUNNING");
}

TEST(JsonTest, IntegersAreNumbersEnumsNamesAndNonFiniteNull) {
  v1::Job job;
  job.set_uid("u");
  job.set_state(v1::RUNNING);
  job.set_created_us(std::numeric_limits<int64_t>::max());
  job.mutable_last_step()->set_loss(std::nan(""));
  job.mutable_last_step()->set_step(7);
  (*job.mutable_last_step()->mutable_memory_bytes())["weights"] = int64_t{1} << 40;
  job.add_conditions()->set_type("Waiting");
  const auto parsed = nlohmann::json::parse(JsonText(job));
  EXPECT_EQ(parsed.at("created_us").get<int64_t>(), std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(parsed.at("created_us").is_number_integer());
  EXPECT_EQ(parsed.at("state"), "RUNNING");
  EXPECT_TRUE(parsed.at("last_step").at("loss").is_null());
  EXPECT_EQ(parsed.at("last_step").at("memory_bytes").at("weights"), int64_t{1} << 40);
  EXPECT_EQ(parsed.at("conditions").at(0).at("type"), "Waiting");
  EXPECT_FALSE(parsed.contains("last_eval"));  // unset message
  EXPECT_EQ(parsed.at("slots"), 0);            // unset scalar
}

TEST(LiveLineTest, ShowsProgressFiguresAndCutsToTheTerminal) {
  v1::Job job;
  job.set_total_steps(200);
  job.set_slots(2);
  v1::StepRecord step;
  step.set_step(50);
  step.set_loss(3.25);
  step.set_learning_rate(6e-4);
  step.set_grad_norm(1.5);
  step.set_tokens_per_second(8100);
  step.set_tflops_per_slot(0.025);
  step.set_host_memory_bytes(64 << 20);
  // Elsewhere than on a terminal: every field, no bar.
  const std::string line = LiveLine(job, step, 0.5, "", 0);
  EXPECT_EQ(line,
            "    50/200  25%  eta 1m15s  loss 3.2500  lr 6.00e-04  gnorm 1.50  8.1k tok/s  "
            "0.05 TFLOP/s  64.0 MiB");
  // Whole fields, as many as there is room for.
  EXPECT_EQ(LiveLine(job, step, 0.5, "", 124),
            "    50/200 [=====>              ]  25%  eta 1m15s  loss 3.2500  lr 6.00e-04  gnorm "
            "1.50  8.1k tok/s  0.05 TFLOP/s  64.0 MiB");
  EXPECT_EQ(LiveLine(job, step, 0.5, "", 120), line);
  EXPECT_EQ(LiveLine(job, step, 0.5, "", 80),
            "    50/200  25%  eta 1m15s  loss 3.2500  lr 6.00e-04  gnorm 1.50  8.1k tok/s");
  EXPECT_EQ(LiveLine(job, step, 0.5, "", 60),
            "    50/200  25%  eta 1m15s  loss 3.2500  lr 6.00e-04");
  for (int width = 10; width < 130; ++width) {
    const std::string cut = LiveLine(job, step, 0.5, "", width);
    EXPECT_LE(cut.size(), static_cast<size_t>(width));
    EXPECT_TRUE(line.starts_with(cut) || cut.size() > line.size()) << cut;
    EXPECT_TRUE(cut.size() >= line.size() || line.substr(cut.size(), 1) == " ") << cut;
  }
  // What it does besides stays longer than the figures.
  EXPECT_EQ(LiveLine(job, step, 0.5, "saving step 50: 3.1 of 15.8 GiB", 60),
            "    50/200  25%  eta 1m15s  saving step 50: 3.1 of 15.8 GiB");
  v1::Parallel* parallel = job.mutable_spec()->mutable_parallel();
  parallel->set_tensor(2);
  parallel->set_pipeline(2);
  parallel->set_context(1);
  parallel->set_data(1);
  step.set_bubble(0.125);
  EXPECT_EQ(LiveLine(job, step, 0.5, "", 0), line + "  tp 2 x pp 2 x dp 1  bubble 12%");
  step.set_skipped_steps(3);
  job.set_last_checkpoint_error("disk full");
  const std::string troubled = LiveLine(job, step, 0.5, "", 0);
  EXPECT_NE(troubled.find("skipped 3"), std::string::npos);
  EXPECT_NE(troubled.find("SAVE FAILED"), std::string::npos);
  EXPECT_EQ(LiveLine(job, step, 0.5, "", 30), "    50/200  25%  SAVE FAILED");
}

TEST(ExitCodeTest, StatusAndJob) {
  EXPECT_EQ(ExitCodeOf(OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")), 2);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), 3);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), 4);
  v1::Job job;
  job.set_state(v1::SUCCEEDED);
  EXPECT_EQ(ExitCodeOf(job), 0);
  job.add_conditions()->set_type("CheckpointStale");
  EXPECT_EQ(ExitCodeOf(job), 6);
  job.set_state(v1::FAILED);
  EXPECT_EQ(ExitCodeOf(job), 9);
  job.set_state(v1::CANCELLED);
  EXPECT_EQ(ExitCodeOf(job), 9);
}

}  // namespace
}  // namespace mt::client
