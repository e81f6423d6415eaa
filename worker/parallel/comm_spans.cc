// A span's label is its step, use and kind in one number; ends of steps have numbers below 0.
#include "worker/parallel/comm_spans.h"

#include <utility>

#include "common/base/check.h"

namespace mt::parallel {
namespace {

constexpr int kKinds = 4;
constexpr int kLabelsOfStep = static_cast<int>(kNumCommUses) * kKinds;

int LabelOf(int64_t step_behind_first, CommUse use, SpanKind kind) {
  return static_cast<int>(step_behind_first) * kLabelsOfStep + static_cast<int>(use) * kKinds +
         static_cast<int>(kind);
}

}  // namespace

void CommSpans::Start(std::unique_ptr<kernels::SpanClock> clock, const Steps& steps) {
  CHECK(clock != nullptr);
  CHECK_LE(steps.first, steps.last);
  CHECK_LT(step_.load(std::memory_order_relaxed), steps.first);
  for (std::atomic<int64_t>& calls : calls_) calls.store(0, std::memory_order_relaxed);
  dropped_.store(0, std::memory_order_relaxed);
  begun_.store(0, std::memory_order_relaxed);
  most_.store(steps.most_spans, std::memory_order_relaxed);
  num_steps_ = 0;
  every_call_.store(steps.every_call, std::memory_order_relaxed);
  const base::MutexLock lock(&mu_);
  CHECK(clock_ == nullptr) << "steps are timed already";
  clock_ = std::move(clock);
  first_.store(steps.first, std::memory_order_relaxed);
  last_.store(steps.last, std::memory_order_relaxed);
}

bool CommSpans::idle() const {
  const base::MutexLock lock(&mu_);
  return clock_ == nullptr;
}

bool CommSpans::Times(int64_t step, int64_t behind) const {
  return step >= first_.load(std::memory_order_relaxed) &&
         step <= last_.load(std::memory_order_relaxed) + behind;
}

void CommSpans::BeginStep(int64_t step) {
  if (Times(step, 0)) ++num_steps_;
  calls_of_last_step_ = seen_.exchange(0, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
}

void CommSpans::EndStep(kernels::Stream& compute) {
  const int64_t step = step_.load(std::memory_order_relaxed);
  if (!Times(step, 0)) return;
  const int64_t behind = step - first_.load(std::memory_order_relaxed);
  const std::optional<Ticket> ticket = BeginLabel(compute, static_cast<int>(-1 - behind));
  if (ticket) End(compute, *ticket);
}

bool CommSpans::Pick(CommUse use, int64_t spans) {
  seen_.fetch_add(spans, std::memory_order_relaxed);
  if (!Times(step_.load(std::memory_order_relaxed), 0)) return false;
  const int64_t before = calls_[static_cast<size_t>(use)].fetch_add(1, std::memory_order_relaxed);
  return every_call_.load(std::memory_order_relaxed) || before % TraitsOf(use).period == 0;
}

bool CommSpans::PickWait() {
  seen_.fetch_add(1, std::memory_order_relaxed);
  return Times(step_.load(std::memory_order_relaxed), 1);
}

std::optional<CommSpans::Ticket> CommSpans::BeginLabel(kernels::Stream& stream, int label) {
  std::shared_ptr<kernels::SpanClock> clock;
  {
    const base::MutexLock lock(&mu_);
    clock = clock_;
  }
  if (clock == nullptr) return std::nullopt;
  const std::optional<kernels::SpanClock::Ticket> number = clock->Begin(stream, label);
  if (!number) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  return Ticket{.clock = std::move(clock), .number = *number};
}

std::optional<CommSpans::Ticket> CommSpans::Begin(kernels::Stream& stream, CommUse use,
                                                  SpanKind kind, int64_t step) {
  const int64_t behind = step - first_.load(std::memory_order_relaxed);
  if (behind < 0) return std::nullopt;  // picked before a Read
  if (begun_.fetch_add(1, std::memory_order_relaxed) >= most_.load(std::memory_order_relaxed)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  return BeginLabel(stream, LabelOf(behind, use, kind));
}

CommRecord CommSpans::Read() {
  std::shared_ptr<kernels::SpanClock> clock;
  {
    const base::MutexLock lock(&mu_);
    clock = std::exchange(clock_, nullptr);
  }
  CommRecord record;
  const int64_t first = first_.load(std::memory_order_relaxed);
  last_.store(first - 2, std::memory_order_relaxed);  // waits of one step more included
  if (clock == nullptr) return record;
  record.steps = num_steps_;
  record.dropped = dropped_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < calls_.size(); ++i)
    record.calls[i] = calls_[i].load(std::memory_order_relaxed);
  const std::vector<kernels::SpanClock::Span> spans = clock->Read();
  record.spans.reserve(spans.size());
  for (const kernels::SpanClock::Span& span : spans) {
    if (span.label < 0) {
      record.ends.push_back({.step = first - 1 - span.label, .at = span.begin});
      continue;
    }
    const int of_step = span.label % kLabelsOfStep;
    record.spans.push_back({.use = static_cast<CommUse>(of_step / kKinds),
                            .kind = static_cast<SpanKind>(of_step % kKinds),
                            .begin = span.begin,
                            .end = span.end,
                            .step = first + span.label / kLabelsOfStep});
  }
  return record;
}

}  // namespace mt::parallel
