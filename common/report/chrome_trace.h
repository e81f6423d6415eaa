// A job's trace in Chrome's trace event format ("Trace Event Format", Google 2016), as Perfetto and
// chrome://tracing read it: a process per rank, a thread per stream, a complete event per span.
#pragma once

#include <string>

namespace megatrain::v1 {
class JobTrace;
}

namespace mt::report {

// JSON. Times are microseconds, with nanoseconds behind the point, since the first span of any
// rank. Threads have one order: compute, exposed, tp, links, replicas, world, host.
std::string ChromeTrace(const megatrain::v1::JobTrace& trace);

}  // namespace mt::report
