// The schedule is simulated in ticks of a nanosecond.
#include "worker/bench/bubble.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/report/step_phase.h"
#include "common/report/trace_stream.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/parallel/schedule/job_request.h"
#include "worker/parallel/schedule/simulate.h"

namespace mt::bench {
namespace {

namespace v1 = megatrain::v1;

// Nanoseconds of all traced steps of all ranks.
struct Work {
  double forward = 0, backward = 0, tensor = 0;
};

Work WorkOf(const v1::JobTrace& trace) {
  Work work;
  for (const v1::RankTrace& rank : trace.ranks()) {
    for (const v1::TraceStream& stream : rank.streams()) {
      if (stream.kind() != v1::TraceStream::COMPUTE) continue;
      for (const report::TraceSpan& span : report::SpansOf(rank, stream)) {
        const auto length = static_cast<double>(span.end - span.begin);
        if (span.label == report::Name(report::StepPhase::kForward)) work.forward += length;
        if (span.label == report::Name(report::StepPhase::kBackward)) work.backward += length;
        if (span.label == report::Name(report::StepPhase::kTpComm)) work.tensor += length;
      }
    }
  }
  return work;
}

int64_t Ticks(double nanos) { return std::max<int64_t>(1, std::llround(nanos)); }

double IdleShare(const parallel::Schedule& schedule, const parallel::Timeline& timeline) {
  double idle = 0;
  for (const auto& actions : timeline.actions) {
    int64_t busy = 0;
    for (const parallel::ScheduleSpan& span : actions) busy += span.end - span.begin;
    idle += static_cast<double>(timeline.end - busy);
  }
  return idle / static_cast<double>(timeline.end) / schedule.stages;
}

}  // namespace

double BubbleByFormula(const v1::JobSpec& job, const v1::JobTrace& trace) {
  const Work work = WorkOf(trace);
  if (job.parallel().pipeline() < 2 || work.forward <= 0 || work.backward <= 0) return 0;
  const int64_t microbatches = spec::MicrobatchesPerStep(job);
  const auto schedule = parallel::GenerateSchedule(parallel::ScheduleRequestOf(job, microbatches));
  if (!schedule.ok()) return 0;
  const v1::RankTrace& first = trace.ranks(0);
  // Of a chunk, a microbatch, a step and a rank; what tensor ranks communicate is in both.
  const double each = static_cast<double>(first.last_step() - first.first_step() + 1) *
                      static_cast<double>(microbatches) * schedule->chunks * trace.ranks_size();
  const double both = 1 + work.tensor / (work.forward + work.backward);
  const auto timeline =
      parallel::SimulateSchedule(*schedule, {.forward = Ticks(work.forward * both / each),
                                             .backward = Ticks(work.backward * both / each)});
  return timeline.ok() ? IdleShare(*schedule, *timeline) : 0;
}

}  // namespace mt::bench
