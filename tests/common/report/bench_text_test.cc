// The text of a benchmark's report, with and without what only a GPU reports.
#include "common/report/bench_text.h"

#include <gtest/gtest.h>

#include "megatrain/v1/types.pb.h"

namespace mt::report {
namespace {

megatrain::v1::BenchReport Report() {
  megatrain::v1::BenchReport report;
  report.set_device("cuda 0, NVIDIA H200");
  report.set_precision("BF16");
  report.set_slots(2);
  report.set_parameters(124439808);
  report.set_warmup_steps(10);
  report.set_steps(50);
  report.set_tokens_per_step(32768);
  report.set_median_step_seconds(0.062312);
  report.set_p95_step_seconds(0.0635);
  report.set_tokens_per_second(525869.8);
  report.set_tflops_per_slot(419.66);
  (*report.mutable_phase_seconds())["forward"] = 0.02;
  (*report.mutable_phase_seconds())["backward"] = 0.06;
  (*report.mutable_phase_seconds())["pp_wait"] = 0;
  (*report.mutable_memory_bytes())["weights"] = int64_t{1} << 30;
  (*report.mutable_memory_bytes())["gradients"] = int64_t{2} << 30;
  return report;
}

TEST(BenchText, SaysWhatWasMeasuredAndNothingElse) {
  const std::string text = BenchText(Report());
  EXPECT_NE(text.find("step       median 62.312 ms, p95 63.500 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("525,870 tokens/s, 262,935 per slot"), std::string::npos) << text;
  EXPECT_NE(text.find("124,439,808 parameters, 32,768 tokens a step"), std::string::npos) << text;
  EXPECT_NE(text.find("phases     backward 75.0 %, forward 25.0 %\n"), std::string::npos) << text;
  EXPECT_NE(text.find("gradients 2.00 GiB, weights 1.00 GiB, in all 3.00 GiB"), std::string::npos);
  for (const char* absent :
       {"mfu", "G  ", "clocks", "power", "kernels", "bubble", "launch", "comm"})
    EXPECT_EQ(text.find(absent), std::string::npos) << absent << " in\n" << text;
}

TEST(BenchText, CommunicationOfTheAxesThatThereAre) {
  megatrain::v1::BenchReport report = Report();
  for (const char* axis : {"tp", "pp", "dp", "world"}) report.add_communication()->set_axis(axis);
  EXPECT_EQ(BenchText(report).find("comm "), std::string::npos) << "nothing was communicated";
  megatrain::v1::AxisTime& tp = *report.mutable_communication(0);
  tp.set_calls(244.4);
  tp.set_seconds(0.0301234);
  tp.set_hidden_seconds(0.012);
  tp.set_exposed_seconds(0.0181234);
  megatrain::v1::AxisTime& world = *report.mutable_communication(3);
  world.set_calls(1);
  world.set_seconds(0.0005);
  world.set_exposed_seconds(0.0005);
  const std::string text = BenchText(report);
  EXPECT_NE(text.find("comm       per step, hidden by computation or exposed: the compute stream "
                      "waits for it\n"
                      "    axis    calls          ms      hidden     exposed\n"
                      "      tp      244      30.123      12.000      18.123\n"
                      "   world        1       0.500       0.000       0.500\n"),
            std::string::npos)
      << text;
}

TEST(BenchText, CommunicationByGroupAndLinkAndTheBubbleTwice) {
  megatrain::v1::BenchReport report = Report();
  report.add_communication()->set_axis("pp");
  report.mutable_communication(0)->set_calls(16);
  megatrain::v1::GroupTime& link = *report.add_groups();
  link.set_group("pp-act 0>1");
  link.set_ranks(4);
  link.set_calls(16);
  link.set_seconds(0.004);
  link.set_hidden_seconds(0.003);
  link.set_exposed_seconds(0.001);
  link.set_most_exposed_seconds(0.0015);
  link.set_most_exposed_rank(3);
  report.set_bubble(0.123);
  report.set_bubble_by_formula(0.0588);
  const std::string text = BenchText(report);
  EXPECT_NE(text.find("         group  ranks    calls          ms      hidden     exposed  most "
                      "exposed\n"
                      "    pp-act 0>1      4       16       4.000       3.000       1.000  1.500 "
                      "on rank 3\n"),
            std::string::npos)
      << text;
  EXPECT_NE(
      text.find("bubble     12.3 % of the pipeline's time, mean over ranks; 5.9 % by formula, "
                "with the measured forward and backward\n"),
      std::string::npos)
      << text;
}

TEST(BenchText, TheWaitForTheHostWhereItIsKnown) {
  megatrain::v1::BenchReport report = Report();
  EXPECT_EQ(BenchText(report).find("host wait"), std::string::npos);
  report.set_host_wait(0);
  EXPECT_NE(BenchText(report).find("host wait  at most 0.00 % of a step, on rank 0"),
            std::string::npos);
  report.set_host_wait(0.00456);
  report.set_host_wait_rank(3);
  EXPECT_NE(BenchText(report).find("host wait  at most 0.46 % of a step, on rank 3: its device may "
                                   "have had nothing enqueued\n"),
            std::string::npos)
      << BenchText(report);
}

TEST(BenchText, GpuReadingsAndKernels) {
  megatrain::v1::BenchReport report = Report();
  report.set_peak_tflops(989.4);
  report.set_mfu(0.4242);
  report.mutable_product()->set_size(8192);
  report.mutable_product()->set_dtype("bf16");
  report.mutable_product()->set_tflops(682.5);
  report.set_ratio_to_product(0.6149);
  auto& readings = *report.mutable_readings();
  readings.set_samples(31);
  readings.set_median_sm_clock_mhz(1755);
  readings.set_median_power_watts(690);
  readings.set_power_limit_watts(700);
  readings.set_power_capped(0.9);
  auto* kernel = report.add_kernels();
  kernel->set_call("linear.Forward x[4,8]");
  kernel->set_calls(36);
  kernel->set_seconds(0.001);
  report.set_kernel_seconds(0.048);
  report.set_ratio_to_kernels(1.298);
  const std::string text = BenchText(report);
  EXPECT_NE(text.find("42.4 % of the 989 TFLOP/s"), std::string::npos) << text;
  EXPECT_NE(text.find("682.5 TFLOP/s (8192^3 bf16, right after the steps); causal / G 0.615"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("slowed by power in 90 %"), std::string::npos) << text;
  EXPECT_NE(text.find("step / sum of its own kernels 1.298 (sum 48.000 ms)"), std::string::npos);
  EXPECT_NE(text.find("  75.0%     36     1000.0  linear.Forward x[4,8]"), std::string::npos)
      << text;
  EXPECT_EQ(BenchLine(report),
            "62.312 ms/step (p95 63.500 ms), 525,870 tokens/s, 419.7 TFLOP/s per slot, 0.615 G, "
            "1.298 x its kernels");
}

}  // namespace
}  // namespace mt::report
