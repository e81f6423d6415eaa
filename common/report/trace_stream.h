// A stream of a trace (proto/megatrain/v1/trace.proto), as spans: what its columns hold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::v1 {
class RankTrace;
class TraceStream;
}  // namespace megatrain::v1

namespace mt::report {

struct TraceSpan {
  std::string label;
  // Nanoseconds since the trace's base (RankTrace.base_ns) or, of SpansOf, by rank 0's clock.
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 0;
  int microbatch = 0;
  int chunk = 0;
};

// Orders the spans by their begin and writes them. One that begins up to `slack_ns` before the end
// of the span before it, as clocks of limited resolution have it, begins there instead. Steps below
// `first_step` are written as it. `placed`: microbatches and chunks are written too.
void WriteSpans(std::vector<TraceSpan> spans, int64_t first_step, bool placed, int64_t slack_ns,
                megatrain::v1::TraceStream* out);

// The spans of a stream of this trace, by the clock of rank 0's host. Columns that are too short,
// as a foreign file may have them, end the stream.
std::vector<TraceSpan> SpansOf(const megatrain::v1::RankTrace& trace,
                               const megatrain::v1::TraceStream& stream);

}  // namespace mt::report
