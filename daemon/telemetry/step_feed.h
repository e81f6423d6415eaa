// The newest steps and evaluations of one job, in memory, and whoever reads them live. Steps are
// told apart by (epoch, step), so reports that come twice after a reconnect are seen once. Not
// thread-safe (the core's thread), except the subscriptions.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "daemon/telemetry/subscription.h"

namespace megatrain::v1 {
class EvalRecord;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::daemon {

// One of both is set. Shared by all readers.
struct MetricItem {
  std::shared_ptr<const megatrain::v1::StepRecord> step;
  std::shared_ptr<const megatrain::v1::EvalRecord> eval;
};
using MetricsSubscription = Subscription<MetricItem>;

inline constexpr size_t kStepsKept = 2'048;
inline constexpr size_t kEvalsKept = 512;

// Over the steps that came since this coordinator started.
struct StepTotals {
  int64_t steps = 0;
  int64_t skipped = 0;
  double tokens = 0;
  double model_flops = 0;
  double forward_seconds = 0;  // of steps that moved the job forward
  double again_seconds = 0;    // of steps that a rollback made necessary once more
};

class StepFeed {
 public:
  StepFeed() = default;
  StepFeed(const StepFeed&) = delete;
  StepFeed& operator=(const StepFeed&) = delete;
  ~StepFeed();

  // What was seen before this coordinator started: older steps are refused.
  void ResumeAfter(int64_t epoch, int64_t step);
  // False for a step that was seen already (or is older than the newest one).
  bool AddStep(const megatrain::v1::StepRecord& step, base::MonotonicTime now);
  void AddEval(const megatrain::v1::EvalRecord& eval);

  // What is held after `since_step`, in order, then what comes; steps at least `min_interval` apart
  // once live. Evaluations before `evals_from` are left out: they come from elsewhere.
  std::shared_ptr<MetricsSubscription> Subscribe(int64_t since_step,
                                                 base::MonotonicTime::duration min_interval,
                                                 int64_t evals_from = 0);
  void Unsubscribe(const MetricsSubscription* subscription);
  // The job has ended, or the coordinator ends: readers get what is queued, then `status`.
  void Close(const Status& status);

  // Of those in memory; INT64_MAX: none is.
  int64_t first_step() const;
  size_t num_steps() const { return steps_.size(); }
  const StepTotals& totals() const { return totals_; }
  // Duration that 99 of 100 of the steps in memory stayed below; 0: there are none.
  double StepSecondsP99() const;
  // Counts what readers of this feed lose.
  void CountDropped(std::atomic<int64_t>* total) { dropped_total_ = total; }
  size_t num_readers() const { return readers_.size(); }

 private:
  struct Reader {
    std::shared_ptr<MetricsSubscription> subscription;
    base::MonotonicTime::duration min_interval;
    base::MonotonicTime next_due{};
  };
  std::deque<std::shared_ptr<const megatrain::v1::StepRecord>> steps_;
  std::deque<std::shared_ptr<const megatrain::v1::EvalRecord>> evals_;
  std::vector<Reader> readers_;
  int64_t last_epoch_ = 0;
  int64_t last_step_ = 0;
  int64_t best_step_ = 0;  // of any epoch
  StepTotals totals_;
  std::atomic<int64_t>* dropped_total_ = nullptr;
};

}  // namespace mt::daemon
