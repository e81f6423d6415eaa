// Steps whose values identify them, and a history in a folder of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/report/step_metrics.h"
#include "daemon/telemetry/history.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

namespace v1 = megatrain::v1;

// Every field that a rank reports, each with a different value that follows from (epoch, step).
inline v1::StepRecord MakeStep(int64_t step, int64_t epoch = 1) {
  v1::StepRecord out;
  const auto x = static_cast<double>(step);
  out.set_step(step);
  out.set_epoch(epoch);
  out.set_time_us(1'700'000'000'000'000 + step * 100'003);
  out.set_loss(10.0 / (1.0 + x) + 0.001 * static_cast<double>(step % 7) +
               100.0 * static_cast<double>(epoch - 1));
  out.set_grad_norm(1.0 + 0.1 * static_cast<double>(step % 11));
  out.set_learning_rate(6e-4 * x / (x + 1000.0));
  out.set_loss_scale(65'536);
  out.set_bubble(0.01 * static_cast<double>(step % 31));
  out.set_tokens(524'288);
  out.set_consumed_samples(step * 512);
  out.set_skipped(step % 100 == 0);
  out.set_skipped_steps(step / 100);
  out.set_step_seconds(0.1 + 1e-5 * static_cast<double>(step % 97));
  for (const char* phase :
       {"data", "forward", "backward", "tp_comm", "pp_wait", "dp_comm", "optimizer", "ckpt"}) {
    (*out.mutable_phase_seconds())[phase] = 0.01 + 1e-6 * static_cast<double>(step % 89);
  }
  out.set_model_flops(1e15);
  out.set_model_flops_full(1.1e15);
  out.set_tflops_per_slot(300.0 + static_cast<double>(step % 13));
  out.set_tflops_per_slot_full(310.0 + static_cast<double>(step % 13));
  out.set_tokens_per_second(5e6 + static_cast<double>(step % 17));
  for (const char* kind : {"weights", "grads", "optimizer", "activations", "comm"}) {
    (*out.mutable_memory_bytes())[kind] = 1'000'000'000 + step % 3;
  }
  out.set_host_memory_bytes(2'000'000'000 + step % 1'000 * 4'096);
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (!metric.is_map() && !metric.IsReported(out)) metric.SetValue(&out, 0.25 * (x + 1.0));
  }
  return out;
}

inline v1::EvalRecord MakeEval(int64_t step, double loss) {
  v1::EvalRecord out;
  out.set_step(step);
  out.set_loss(loss);
  out.set_split("valid");
  out.set_time_us(step);
  return out;
}

class HistoryTest : public ::testing::Test {
 protected:
  static constexpr char kJob[] = "job-1";

  void SetUp() override {
    folder_ = ::testing::TempDir() + "mt-history-" + base::RandomHex(6);
    Restart();
  }
  void TearDown() override {
    history_.reset();
    std::filesystem::remove_all(folder_);
  }
  // Reopens the history as after SIGKILL: what was not flushed is lost.
  void Restart(const std::set<std::string, std::less<>>& known = {kJob, "job-2"}) {
    history_ = std::make_unique<History>(folder_);
    history_->Recover(known);
  }
  void AppendRange(int64_t first, int64_t last, int64_t epoch = 1, const char* job = kJob) {
    for (int64_t step = first; step <= last; ++step) {
      ASSERT_TRUE(history_->Append(job, MakeStep(step, epoch))) << step;
    }
  }
  void Flush() { ASSERT_TRUE(history_->Flush().ok()); }
  // Every step of the history, read step by step.
  HistoryTable All(const char* job = kJob) {
    return history_->Steps(job, 0, 1LL << 40, 10'000'000).rows;
  }
  // Expects steps 1 to `last`, each once; those from `second_epoch` on belong to epoch 2.
  void ExpectWhole(int64_t last, int64_t second_epoch = 1LL << 40, const char* job = kJob) {
    const HistoryTable rows = All(job);
    ASSERT_EQ(rows.num_rows(), static_cast<size_t>(last));
    for (int64_t step = 1; step <= last; ++step) {
      const auto row = static_cast<size_t>(step - 1);
      const v1::StepRecord want = MakeStep(step, step >= second_epoch ? 2 : 1);
      ASSERT_EQ(rows.ToStep(row).SerializeAsString().size(), want.SerializeAsString().size());
      ASSERT_EQ(rows.steps[row], step);
      ASSERT_EQ(rows.epochs[row], want.epoch());
      ASSERT_EQ(rows.Find("loss")->last[row], want.loss());
      ASSERT_EQ(rows.times_us[row], want.time_us());
    }
  }
  // Expects the buckets of `level` to equal minima, maxima and last values of the steps themselves.
  void ExpectPyramid(int level, int points) {
    const HistoryTable rows = All();
    const HistoryView view = history_->Query(kJob, {.points = points, .names = {"loss"}});
    ASSERT_EQ(view.rows.level, level);
    const HistoryColumn& loss = *view.rows.Find("loss");
    const HistoryColumn& all = *rows.Find("loss");
    size_t row = 0;
    for (size_t i = 0; i < view.rows.num_rows(); ++i) {
      double low = all.last[row];
      double high = all.last[row];
      for (; row < rows.num_rows() && rows.steps[row] <= view.rows.steps[i]; ++row) {
        low = std::min(low, all.last[row]);
        high = std::max(high, all.last[row]);
      }
      ASSERT_EQ(loss.min[i], low) << "point " << i;
      ASSERT_EQ(loss.max[i], high) << "point " << i;
      ASSERT_EQ(loss.last[i], all.last[row - 1]) << "point " << i;
      ASSERT_EQ(view.rows.times_us[i], rows.times_us[row - 1]);
    }
    EXPECT_EQ(row, rows.num_rows()) << "every step is in a point";
  }
  std::string File(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  std::unique_ptr<History> history_;
};

}  // namespace mt::daemon
