// The newest steps and evaluations of one job in memory, and the readers that follow them live.
// Steps are identified by (epoch, step), so reports repeated after a reconnect are seen once. Not
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

// Exactly one member is set. Shared by all readers.
struct MetricItem {
  std::shared_ptr<const megatrain::v1::StepRecord> step;
  std::shared_ptr<const megatrain::v1::EvalRecord> eval;
};
using MetricsSubscription = Subscription<MetricItem>;

// Number of steps and evaluations held per job.
inline constexpr size_t kStepsKept = 2'048;
inline constexpr size_t kEvalsKept = 512;

// Sums over the steps that arrived since this coordinator started.
struct StepTotals {
  int64_t steps = 0;
  int64_t skipped = 0;
  double tokens = 0;
  double model_flops = 0;
  double forward_seconds = 0;  // of steps that advanced the job
  double again_seconds = 0;    // of steps that were repeated after a rollback
};

// The live feed of one job.
class StepFeed {
 public:
  StepFeed() = default;
  StepFeed(const StepFeed&) = delete;
  StepFeed& operator=(const StepFeed&) = delete;
  ~StepFeed();

  // Sets the newest step seen before this coordinator started; steps up to it are refused.
  void ResumeAfter(int64_t epoch, int64_t step);
  // Adds a step and pushes it to the readers. Returns false for a step that is not newer than the
  // newest by (epoch, step).
  bool AddStep(const megatrain::v1::StepRecord& step, base::MonotonicTime now);
  // Adds an evaluation and pushes it to the readers.
  // Its samples go to those who read now, and are not kept.
  void AddEval(const megatrain::v1::EvalRecord& eval);

  // A subscription that starts with what is held after `since_step`, in order, and continues live,
  // with at least `min_interval` between steps. Held evaluations of steps before `evals_from` are
  // left out, since the caller reads them elsewhere.
  std::shared_ptr<MetricsSubscription> Subscribe(int64_t since_step,
                                                 base::MonotonicTime::duration min_interval,
                                                 int64_t evals_from = 0);
  // Removes a reader; an unknown one is ignored.
  void Unsubscribe(const MetricsSubscription* subscription);
  // The job has ended or the coordinator is stopping: readers get what is queued, then `status`.
  void Close(const Status& status);

  // The first step in memory; INT64_MAX: there is none.
  int64_t first_step() const;
  size_t num_steps() const { return steps_.size(); }
  const StepTotals& totals() const { return totals_; }
  // The 99th percentile of step_seconds over the steps in memory; 0: there are none.
  double StepSecondsP99() const;
  // Sets the counter of items that slow readers lose; it must outlive the subscriptions.
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
  int64_t best_step_ = 0;  // largest step of any epoch
  StepTotals totals_;
  std::atomic<int64_t>* dropped_total_ = nullptr;
};

}  // namespace mt::daemon
