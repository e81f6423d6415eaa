// What communication takes in some steps of a benchmark, and when the compute stream waits for it.
// Whoever communicates puts its calls and its waits into TimeCall and TimeWait, which do nothing
// more where nothing is timed (nullptr). Of uses with many small calls only some are timed, to keep
// the step as it is. What follows from the spans: worker/bench/axis_times.h.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/span_clock.h"

namespace mt::parallel {

// What a call is for.
enum class CommUse : uint8_t {
  kLayer,     // gathers and reductions around a layer's products
  kPartial,   // sums of partial gradients over tensor ranks
  kParcel,    // a parcel, where it is sent
  kTable,     // the exchange between the ends of a tied table
  kReplicas,  // sums of gradients and gathers of weights, bucket by bucket
  kWorld,     // the end-of-step vector
};

struct CommUseTraits {
  std::string_view axis;
  // One call in so many is timed: no divisor of what a layer or a microbatch has of them, so that
  // each kind comes in turn.
  int64_t period = 1;
};
inline constexpr std::array<CommUseTraits, 6> kCommUses = {{{.axis = "tp", .period = 17},
                                                            {.axis = "tp", .period = 1},
                                                            {.axis = "pp", .period = 5},
                                                            {.axis = "pp", .period = 1},
                                                            {.axis = "dp", .period = 1},
                                                            {.axis = "world", .period = 1}}};
constexpr const CommUseTraits& TraitsOf(CommUse use) { return kCommUses[static_cast<size_t>(use)]; }

enum class SpanKind : uint8_t {
  kBeside,  // a call beside the compute stream
  kInline,  // a call on the compute stream, which does nothing else meanwhile
  kWait,    // a wait of the compute stream for calls beside it
};

struct CommSpan {
  CommUse use = CommUse::kLayer;
  SpanKind kind = SpanKind::kBeside;
  double begin = 0, end = 0;  // seconds, as of SpanClock
};

struct CommRecord {
  int64_t steps = 0;
  std::array<int64_t, kCommUses.size()> calls{};  // by use; of all these steps, timed or not
  std::vector<CommSpan> spans;
};

// One rank's. BeginStep and Read by the training thread; the rest by any thread.
class CommSpans {
 public:
  // Times the calls of the steps `first` to `last`, and waits of one step more: the gathers behind
  // an update are waited for in the next forward.
  CommSpans(std::unique_ptr<kernels::SpanClock> clock, int64_t first, int64_t last)
      : clock_(std::move(clock)), first_(first), last_(last) {}

  // What is enqueued from now on belongs to this step.
  void BeginStep(int64_t step);
  // Counts a call of a step that is timed. Whether it is one of those to be timed.
  bool Pick(CommUse use);
  // Whether waits are timed now.
  bool times_waits() const;
  // Of failed calls there is no span. Blocks until the device has done what was timed.
  CommRecord Read();

  // For TimeCall and TimeWait.
  std::optional<kernels::SpanClock::Ticket> Begin(kernels::Stream& stream, CommUse use,
                                                  SpanKind kind);
  void End(kernels::Stream& stream, kernels::SpanClock::Ticket ticket) {
    clock_->End(stream, ticket);
  }

 private:
  const std::unique_ptr<kernels::SpanClock> clock_;
  const int64_t first_, last_;
  int64_t num_steps_ = 0;  // of first_ to last_
  std::atomic<int64_t> step_ = -1;
  std::array<std::atomic<int64_t>, kCommUses.size()> calls_{};
};

// Runs `call`, whose work goes to `stream`, as a span, unless `spans` is nullptr. Returns what it
// returns.
template <class Call>
Status TimeSpan(CommSpans* spans, kernels::Stream& stream, CommUse use, SpanKind kind,
                const Call& call) {
  if (spans == nullptr) return call();
  const std::optional<kernels::SpanClock::Ticket> ticket = spans->Begin(stream, use, kind);
  Status status = call();
  if (ticket && status.ok()) spans->End(stream, *ticket);
  return status;
}

// `spans` where this call is to be timed, which it counts; else nullptr. For a call whose wait is
// timed exactly if it is itself.
inline CommSpans* PickCall(CommSpans* spans, CommUse use) {
  return spans != nullptr && spans->Pick(use) ? spans : nullptr;
}

// Runs a call of communication and times it if its turn has come.
template <class Call>
Status TimeCall(CommSpans* spans, kernels::Stream& stream, CommUse use, SpanKind kind,
                const Call& call) {
  return TimeSpan(PickCall(spans, use), stream, use, kind, call);
}

// Runs what makes the compute stream wait for calls of this use.
template <class Call>
Status TimeWait(CommSpans* spans, kernels::Stream& compute, CommUse use, const Call& call) {
  CommSpans* const timed = spans != nullptr && spans->times_waits() ? spans : nullptr;
  return TimeSpan(timed, compute, use, SpanKind::kWait, call);
}

}  // namespace mt::parallel
