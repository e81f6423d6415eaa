// The newest steps and evaluations of one job, in memory, and whoever reads them live. Steps are
// told apart by (epoch, step), so reports that come twice after a reconnect are seen once. Not
// thread-safe (the core's thread), except the subscriptions.
#pragma once

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
  // once live.
  std::shared_ptr<MetricsSubscription> Subscribe(int64_t since_step,
                                                 base::MonotonicTime::duration min_interval);
  void Unsubscribe(const MetricsSubscription* subscription);
  // The job has ended, or the coordinator ends: readers get what is queued, then `status`.
  void Close(const Status& status);

  size_t num_steps() const { return steps_.size(); }
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
};

}  // namespace mt::daemon
