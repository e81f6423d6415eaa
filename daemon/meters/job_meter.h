// The series of one job (METRICS.md): gauges and counters from the job's status, its steps and its
// events. At most 64 series (limit T2). Not thread-safe: the core's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/metrics/registry.h"

namespace megatrain::v1 {
enum JobState : int;
class EvalRecord;
class Event;
class Job;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::report {
class StepMetric;
}

namespace mt::daemon {

class StepFeed;

// The metric families of jobs, each declared once per registry.
struct JobFamilies {
  explicit JobFamilies(metrics::Registry* registry);

  metrics::Family<metrics::Gauge> state, info, run_info, ranks, slots, epoch, step, total_steps,
      last_step_time, step_limit, validation_loss, validation_perplexity, validation_bits_per_byte,
      save_seconds, save_bytes, save_step, save_time, saving, save_interval_steps,
      save_interval_seconds, second_lag;
  metrics::Family<metrics::Counter> skipped, tokens, flops, restarts, goodput, badput, save_stall,
      save_failures;
  // Gauges of the last step, which StepRecord declares.
  std::vector<std::pair<const report::StepMetric*, metrics::Family<metrics::Gauge>>> last_step;
};

// The series of one job; they exist as long as this object.
class JobMeter {
 public:
  // The current time by both clocks.
  struct Moment {
    base::MonotonicTime now;
    int64_t wall_us;
  };
  JobMeter(const JobFamilies* families, const megatrain::v1::Job& job, const Moment& moment);
  JobMeter(const JobMeter&) = delete;
  JobMeter& operator=(const JobMeter&) = delete;

  // Sets all series from the job's current status. `feed` may be null: no step has arrived.
  // `saving`: a checkpoint is known to be in progress. The time since the last call counts as lost
  // to the previous state where that state makes no progress.
  void Update(const megatrain::v1::Job& job, const StepFeed* feed, bool saving,
              const Moment& moment);
  // Counts failed checkpoints.
  void OnEvent(const megatrain::v1::Event& event);
  // True from five minutes after the job's end (T2): the series should be removed.
  bool IsOver(base::MonotonicTime now) const { return now >= over_at_; }

 private:
  // Sets a gauge that is created with its first value.
  void Show(std::string_view name, const metrics::Family<metrics::Gauge>& family, double value);
  void ShowInfo(const megatrain::v1::Job& job);
  void ShowRun(const megatrain::v1::Job& job);
  void ShowState(const megatrain::v1::Job& job, const Moment& moment);
  void ShowSteps(const megatrain::v1::Job& job, const StepFeed* feed, bool saving);
  void ShowEvaluation(const megatrain::v1::EvalRecord& eval);
  void ShowLastStep(const megatrain::v1::StepRecord& step);
  void ShowSaves(const megatrain::v1::Job& job, bool saving);
  void CountTime(const Moment& moment);

  const JobFamilies* families_;
  metrics::SeriesGroup series_;
  metrics::SeriesGroup info_;  // recreated with another label once the precision is known
  std::string shown_precision_;
  metrics::SeriesGroup run_info_;  // recreated where the job trains another run
  std::string shown_run_;
  std::map<std::string, metrics::Gauge, std::less<>> shown_;
  std::map<int, metrics::Gauge> states_;
  std::map<std::string, metrics::Gauge, std::less<>> ranks_;
  std::map<std::string, metrics::Counter, std::less<>> badput_, restarts_;
  metrics::Gauge slots_, epoch_, step_, total_steps_, last_step_time_, step_limit_, save_step_,
      saving_;
  metrics::Counter skipped_, tokens_, flops_, goodput_, save_stall_, save_failures_;

  megatrain::v1::JobState last_state_{};
  bool was_released_ = false;
  int64_t last_epoch_ = 0;
  int64_t running_since_us_ = 0;
  int64_t last_save_us_ = 0;
  base::MonotonicTime last_update_;
  base::MonotonicTime over_at_ = base::MonotonicTime::max();
};

}  // namespace mt::daemon
