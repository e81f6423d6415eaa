// What communication takes in some steps of a run, and when the compute stream waits for it.
// Whoever communicates puts its calls and its waits into TimeCall and TimeWait, which do nothing
// more where nothing is timed: no CommSpans (nullptr), or one that is idle. Where a step must stay
// as it is (benchmarks), only some calls of uses with many small ones are timed; a trace times them
// all. What follows from the spans: worker/trace, worker/bench.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "kernels/core/span_clock.h"

namespace mt::parallel {

// What a call is for: one group of the rank, or one of its links, each.
enum class CommUse : uint8_t {
  kLayer,       // gathers and reductions around a layer's products
  kPartial,     // sums of partial gradients over tensor ranks
  kActivation,  // a parcel to the next stage, where it is sent
  kGradient,    // a parcel to the previous stage, where it is sent
  kTable,       // the exchange between the ends of a tied table
  kReduce,      // sums of gradients over replicas, bucket by bucket
  kGather,      // gathers of replicas' weights, bucket by bucket
  kWorld,       // the end-of-step vector
};

struct CommUseTraits {
  std::string_view axis;
  // Of the group, as in common/layout/group_axes.h; of links the first part of their names.
  std::string_view group;
  // One call in so many is timed: no divisor of what a layer or a microbatch has of them, so that
  // each kind comes in turn.
  int64_t period = 1;
};
inline constexpr size_t kNumCommUses = 8;
inline constexpr std::array<CommUseTraits, kNumCommUses> kCommUses = {
    {{.axis = "tp", .group = "tp", .period = 17},
     {.axis = "tp", .group = "tp-control", .period = 1},
     {.axis = "pp", .group = "pp-act", .period = 5},
     {.axis = "pp", .group = "pp-grad", .period = 5},
     {.axis = "pp", .group = "tied", .period = 1},
     {.axis = "dp", .group = "dp-reduce", .period = 1},
     {.axis = "dp", .group = "dp-gather", .period = 1},
     {.axis = "world", .group = "control", .period = 1}}};
constexpr const CommUseTraits& TraitsOf(CommUse use) { return kCommUses[static_cast<size_t>(use)]; }

enum class SpanKind : uint8_t {
  kBeside,    // a call beside the compute stream
  kInline,    // a call on the compute stream, which does nothing else meanwhile
  kWait,      // a wait of the compute stream for calls beside it; of links, for what arrives
  kWaitSent,  // a wait of the compute stream for its own parcels to be sent
};

struct CommSpan {
  CommUse use = CommUse::kLayer;
  SpanKind kind = SpanKind::kBeside;
  double begin = 0, end = 0;  // seconds, as of SpanClock
  int64_t step = 0;           // in which it began by the host's order
};

// The end of a step on the compute stream, seconds as of SpanClock.
struct StepEnd {
  int64_t step = 0;
  double at = 0;
};

struct CommRecord {
  int64_t steps = 0;
  std::array<int64_t, kNumCommUses> calls{};  // by use; of all these steps, timed or not
  std::vector<CommSpan> spans;
  std::vector<StepEnd> ends;
  int64_t dropped = 0;  // spans that found no room, or lay in a recording
};

// One rank's. Start, BeginStep, EndStep and Read by the training thread; the rest by any thread.
class CommSpans {
 public:
  // The calls of the steps `first` to `last` are timed, and waits of one step more: the gathers
  // behind an update are waited for in the next forward.
  struct Steps {
    int64_t first = 0;
    int64_t last = -1;
    bool every_call = false;  // else one in CommUseTraits::period
    // Calls and waits that are timed; what comes later is dropped. Below the clock's room by the
    // number of steps, their ends always find theirs.
    int64_t most_spans = std::numeric_limits<int64_t>::max();
  };

  // Idle: counts calls, times nothing.
  CommSpans() = default;
  CommSpans(std::unique_ptr<kernels::SpanClock> clock, const Steps& steps) {
    Start(std::move(clock), steps);
  }

  // Times these steps, of which none has begun. CHECKs that it is idle.
  void Start(std::unique_ptr<kernels::SpanClock> clock, const Steps& steps) LOCKS_EXCLUDED(mu_);
  bool idle() const LOCKS_EXCLUDED(mu_);
  // What is enqueued from now on belongs to this step.
  void BeginStep(int64_t step);
  // The step's work on the compute stream is enqueued.
  void EndStep(kernels::Stream& compute);
  // Calls and waits of one of the last two steps, whichever has more: what timing them all takes.
  int64_t calls_of_a_step() const {
    return std::max(calls_of_last_step_, seen_.load(std::memory_order_relaxed));
  }

  // The step that has begun last.
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Counts a call, which takes so many spans if it is timed. Whether it is one of those.
  bool Pick(CommUse use, int64_t spans = 1);
  // Whether waits are timed now; counts this one.
  bool PickWait();
  // Of failed calls there is no span. Blocks until the device has done what was timed. Idle
  // afterwards.
  CommRecord Read() LOCKS_EXCLUDED(mu_);

  // For TimeSpan: a span that was begun, and where. nullopt: nothing is timed.
  struct Ticket {
    std::shared_ptr<kernels::SpanClock> clock;
    kernels::SpanClock::Ticket number = 0;
  };
  std::optional<Ticket> Begin(kernels::Stream& stream, CommUse use, SpanKind kind, int64_t step)
      LOCKS_EXCLUDED(mu_);
  static void End(kernels::Stream& stream, const Ticket& ticket) {
    ticket.clock->End(stream, ticket.number);
  }

 private:
  std::optional<Ticket> BeginLabel(kernels::Stream& stream, int label) LOCKS_EXCLUDED(mu_);
  bool Times(int64_t step, int64_t behind) const;

  mutable base::Mutex mu_;
  std::shared_ptr<kernels::SpanClock> clock_ GUARDED_BY(mu_);  // nullptr: idle
  // Read by any thread; written between steps, while nothing that is timed is under way.
  std::atomic<int64_t> first_ = 0, last_ = -1;
  std::atomic<bool> every_call_ = false;
  std::atomic<int64_t> step_ = -1;
  int64_t num_steps_ = 0;           // of first_ to last_ that have begun
  int64_t calls_of_last_step_ = 0;  // and waits
  std::atomic<int64_t> seen_ = 0;   // calls and waits of this step
  std::atomic<int64_t> dropped_ = 0;
  std::atomic<int64_t> most_ = 0, begun_ = 0;  // calls and waits
  std::array<std::atomic<int64_t>, kNumCommUses> calls_{};
};

// A call that is to be timed (spans is not nullptr), as of a step.
struct PickedCall {
  CommSpans* spans = nullptr;
  int64_t step = 0;
};

// Runs `call`, whose work goes to `stream`, as a span, if it was picked. Returns what it returns.
template <class Call>
Status TimePicked(const PickedCall& picked, kernels::Stream& stream, CommUse use, SpanKind kind,
                  const Call& call) {
  if (picked.spans == nullptr) return call();
  const std::optional<CommSpans::Ticket> ticket =
      picked.spans->Begin(stream, use, kind, picked.step);
  Status status = call();
  if (ticket && status.ok()) CommSpans::End(stream, *ticket);
  return status;
}

// The same of a call of the step that has begun last, unless `spans` is nullptr.
template <class Call>
Status TimeSpan(CommSpans* spans, kernels::Stream& stream, CommUse use, SpanKind kind,
                const Call& call) {
  return TimePicked({.spans = spans, .step = spans == nullptr ? 0 : spans->step()}, stream, use,
                    kind, call);
}

// `spans` where this call is to be timed, which it counts; else nullptr. Two spans: a call whose
// wait is timed exactly if it is itself.
inline CommSpans* PickCall(CommSpans* spans, CommUse use, int64_t num_spans = 1) {
  return spans != nullptr && spans->Pick(use, num_spans) ? spans : nullptr;
}

// The same for a call that runs later, on a thread that may be in the next step by then.
inline PickedCall PickForLater(CommSpans* spans, CommUse use) {
  CommSpans* const picked = PickCall(spans, use);
  return {.spans = picked, .step = picked == nullptr ? 0 : picked->step()};
}

// Runs a call of communication and times it if its turn has come.
template <class Call>
Status TimeCall(CommSpans* spans, kernels::Stream& stream, CommUse use, SpanKind kind,
                const Call& call) {
  return TimeSpan(PickCall(spans, use), stream, use, kind, call);
}

// Runs what makes the compute stream wait for calls of this use.
template <class Call>
Status TimeWait(CommSpans* spans, kernels::Stream& compute, CommUse use, const Call& call,
                SpanKind kind = SpanKind::kWait) {
  CommSpans* const timed = spans != nullptr && spans->PickWait() ? spans : nullptr;
  return TimeSpan(timed, compute, use, kind, call);
}

}  // namespace mt::parallel
