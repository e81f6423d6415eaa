// A deque of recent steps and a list of readers, each with its own queue; records are shared, not
// copied.
#include "daemon/telemetry/step_feed.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "common/control/numbers.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

namespace v1 = megatrain::v1;

StepFeed::~StepFeed() = default;

void StepFeed::ResumeAfter(int64_t epoch, int64_t step) {
  last_epoch_ = epoch;
  last_step_ = step;
  best_step_ = step;
}

int64_t StepFeed::first_step() const {
  return steps_.empty() ? std::numeric_limits<int64_t>::max() : steps_.front()->step();
}

double StepFeed::StepSecondsP99() const {
  if (steps_.empty()) return 0;
  std::vector<double> seconds;
  seconds.reserve(steps_.size());
  for (const auto& step : steps_) seconds.push_back(step->step_seconds());
  const auto at = seconds.begin() + static_cast<std::ptrdiff_t>((seconds.size() - 1) * 99 / 100);
  std::ranges::nth_element(seconds, at);
  return *at;
}

bool StepFeed::AddStep(const v1::StepRecord& step, base::MonotonicTime now) {
  if (std::make_tuple(step.epoch(), step.step()) <= std::make_tuple(last_epoch_, last_step_))
    return false;
  last_epoch_ = step.epoch();
  last_step_ = step.step();
  // Steps that a rollback undid are not shown to later readers.
  while (!steps_.empty() && steps_.back()->step() >= step.step()) steps_.pop_back();
  while (!evals_.empty() && evals_.back()->step() >= step.step()) evals_.pop_back();
  totals_.steps += 1;
  totals_.skipped += step.skipped() ? 1 : 0;
  totals_.tokens += static_cast<double>(step.tokens());
  totals_.model_flops += step.model_flops();
  (step.step() > best_step_ ? totals_.forward_seconds : totals_.again_seconds) +=
      step.step_seconds();
  best_step_ = std::max(best_step_, step.step());
  steps_.push_back(std::make_shared<const v1::StepRecord>(step));
  if (steps_.size() > kStepsKept) steps_.pop_front();
  for (Reader& reader : readers_) {
    if (now < reader.next_due) continue;
    reader.next_due = now + reader.min_interval;
    reader.subscription->Push({.step = steps_.back(), .eval = nullptr});
  }
  return true;
}

void StepFeed::AddEval(const v1::EvalRecord& eval) {
  const auto whole = std::make_shared<const v1::EvalRecord>(eval);
  for (Reader& reader : readers_) reader.subscription->Push({.step = nullptr, .eval = whole});
  v1::EvalRecord kept = eval;
  kept.clear_samples();
  evals_.push_back(std::make_shared<const v1::EvalRecord>(std::move(kept)));
  if (evals_.size() > kEvalsKept) evals_.pop_front();
}

std::shared_ptr<MetricsSubscription> StepFeed::Subscribe(int64_t since_step,
                                                         base::MonotonicTime::duration min_interval,
                                                         int64_t evals_from) {
  // The queue has room for everything held, so that the start of a stream is never truncated.
  auto subscription = std::make_shared<MetricsSubscription>(
      steps_.size() + evals_.size() + control::kStreamQueue, dropped_total_);
  auto eval = evals_.begin();
  const auto push_evals_before = [&](int64_t step) {
    for (; eval != evals_.end() && (*eval)->step() < step; ++eval) {
      if ((*eval)->step() > since_step && (*eval)->step() >= evals_from)
        subscription->Push({.step = nullptr, .eval = *eval});
    }
  };
  for (const auto& step : steps_) {
    if (step->step() <= since_step) continue;
    push_evals_before(step->step());
    subscription->Push({.step = step, .eval = nullptr});
  }
  push_evals_before(std::numeric_limits<int64_t>::max());
  readers_.push_back({.subscription = subscription, .min_interval = min_interval});
  return subscription;
}

void StepFeed::Unsubscribe(const MetricsSubscription* subscription) {
  std::erase_if(readers_,
                [&](const Reader& reader) { return reader.subscription.get() == subscription; });
}

void StepFeed::Close(const Status& status) {
  for (const Reader& reader : readers_) reader.subscription->Close(status);
  readers_.clear();
}

}  // namespace mt::daemon
