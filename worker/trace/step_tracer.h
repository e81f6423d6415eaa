// One rank's trace of some steps: phases of the compute stream from its marks, communication from
// spans of every stream, and what the host did, all by the host's clock. Communication is timed by
// a clock of spans that is made for these steps alone; a run without a trace has none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/layout/group_axes.h"
#include "common/report/trace_stream.h"
#include "kernels/core/device.h"
#include "worker/engine/phase_clock.h"
#include "worker/parallel/comm_spans.h"
#include "worker/trace/clock_map.h"

namespace megatrain::v1 {
class RankTrace;
}

namespace mt::trace {

// Ends the label of a phase that is no step's time.
inline constexpr std::string_view kBetweenSteps = ", between steps";

// Which steps; none where `last` is below `first`.
struct TraceSteps {
  int64_t first = 0;
  int64_t last = -1;
  // Whether every call of communication is timed. Else one in CommUseTraits::period, and of a
  // benchmark's steps less is disturbed.
  bool every_call = true;
  bool empty() const { return last < first; }
};

// How many calls and waits of communication a rank of so many times in these steps at most, where a
// step has had so many (0: none has told). What all ranks' come to is limited: rank 0 holds it.
int64_t SpanCapacity(const TraceSteps& steps, int64_t calls_of_a_step, int64_t ranks);

// One thread.
class StepTracer {
 public:
  // All must outlive the tracer.
  struct Args {
    kernels::Device* device = nullptr;
    parallel::CommSpans* spans = nullptr;
    engine::PhaseClock* phases = nullptr;
    const layout::GroupAxes* axes = nullptr;
    int chunks = 1;                      // per stage
    const base::Clock* clock = nullptr;  // of the host
  };
  explicit StepTracer(const Args& args) : args_(args) {}
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  // Traces these steps, of which none is enqueued and all before are over: waits for the device.
  // CHECKs that none are traced.
  void Start(const TraceSteps& steps);
  bool active() const { return !steps_.empty(); }
  const TraceSteps& steps() const { return steps_; }
  // What the host did for a step from `begin` until now; nothing where that step is not traced.
  void AddHost(std::string_view what, int64_t step, base::MonotonicTime begin);
  // True once `step` is enqueued behind all that the trace has: the waits of one step more.
  bool EndsBefore(int64_t step) const { return active() && step > steps_.last + 1; }
  // Ends the trace with `last_done`, or with its last step if that is before: waits until the
  // device is done. Afterwards none is active. `out` has no streams where not one step was done.
  void Finish(int64_t last_done, megatrain::v1::RankTrace* out);

 private:
  int64_t NowNanos() const;
  // Now, by the clocks of marks and of the host; waits for the device.
  ClockPoint MeasureNow() const;
  // From the clock of spans to the host's: spans and marks have both noted the ends of steps.
  // nullopt: nothing tells it.
  static std::optional<ClockMap> MapOfSpans(const parallel::CommRecord& record,
                                            const std::vector<engine::PhaseInterval>& phases,
                                            const ClockMap& marks_to_host);

  const Args args_;
  TraceSteps steps_;
  ClockPoint begin_;  // when the trace began
  std::vector<report::TraceSpan> host_;
};

}  // namespace mt::trace
