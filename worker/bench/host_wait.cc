// What lies between steps is nobody's step time, and was left out of the starved stream already.
#include "worker/bench/host_wait.h"

#include <cstdint>
#include <string_view>

#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/trace/step_tracer.h"

namespace mt::bench {
namespace {

namespace v1 = megatrain::v1;

// Nanoseconds of all traced steps but the first.
int64_t NanosOf(const v1::RankTrace& rank, const v1::TraceStream& stream) {
  int64_t nanos = 0;
  for (const report::TraceSpan& span : report::SpansOf(rank, stream)) {
    if (span.step <= rank.first_step() || span.step > rank.last_step()) continue;
    if (!std::string_view(span.label).ends_with(trace::kBetweenSteps))
      nanos += span.end - span.begin;
  }
  return nanos;
}

}  // namespace

std::optional<HostWait> LargestHostWait(const v1::JobTrace& trace) {
  std::optional<HostWait> largest;
  for (const v1::RankTrace& rank : trace.ranks()) {
    int64_t steps = 0, starved = 0;
    bool known = false;
    for (const v1::TraceStream& stream : rank.streams()) {
      if (stream.kind() == v1::TraceStream::COMPUTE) steps = NanosOf(rank, stream);
      if (stream.kind() != v1::TraceStream::STARVED) continue;
      starved = NanosOf(rank, stream);
      known = true;
    }
    if (!known || steps == 0) return std::nullopt;
    const double share = static_cast<double>(starved) / static_cast<double>(steps);
    if (!largest || share > largest->share) largest = HostWait{.share = share, .rank = rank.rank()};
  }
  return largest;
}

}  // namespace mt::bench
