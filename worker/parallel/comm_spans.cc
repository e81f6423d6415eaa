// A span's label is its use and kind in one number.
#include "worker/parallel/comm_spans.h"

namespace mt::parallel {
namespace {

constexpr int kKinds = 3;

int LabelOf(CommUse use, SpanKind kind) {
  return static_cast<int>(use) * kKinds + static_cast<int>(kind);
}

}  // namespace

void CommSpans::BeginStep(int64_t step) {
  if (step >= first_ && step <= last_) ++num_steps_;
  step_.store(step, std::memory_order_relaxed);
}

bool CommSpans::Pick(CommUse use) {
  const int64_t step = step_.load(std::memory_order_relaxed);
  if (step < first_ || step > last_) return false;
  const int64_t before = calls_[static_cast<size_t>(use)].fetch_add(1, std::memory_order_relaxed);
  return before % TraitsOf(use).period == 0;
}

bool CommSpans::times_waits() const {
  const int64_t step = step_.load(std::memory_order_relaxed);
  return step >= first_ && step <= last_ + 1;
}

std::optional<kernels::SpanClock::Ticket> CommSpans::Begin(kernels::Stream& stream, CommUse use,
                                                           SpanKind kind) {
  return clock_->Begin(stream, LabelOf(use, kind));
}

CommRecord CommSpans::Read() {
  CommRecord record{.steps = num_steps_};
  for (size_t i = 0; i < calls_.size(); ++i)
    record.calls[i] = calls_[i].load(std::memory_order_relaxed);
  const std::vector<kernels::SpanClock::Span> spans = clock_->Read();
  record.spans.reserve(spans.size());
  for (const kernels::SpanClock::Span& span : spans) {
    record.spans.push_back({.use = static_cast<CommUse>(span.label / kKinds),
                            .kind = static_cast<SpanKind>(span.label % kKinds),
                            .begin = span.begin,
                            .end = span.end});
  }
  return record;
}

}  // namespace mt::parallel
