// Timing of calls, and the lines that the CPU benchmark prints. The fastest of several runs counts,
// because disturbances (other processes, interrupts) only ever add time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace mt::kernels::bench {

// Makes Now() read the processor time of the calling thread instead of the wall clock: on an idle
// machine both are equal for one thread, and on a busy one only this is comparable. Called once, at
// the start.
void UseProcessorTime();

// Returns seconds since some fixed point.
double Now();

// Returns the seconds of the fastest of at least `min_runs` calls, and of as many as fit into about
// 0.3 s.
double FastestSeconds(const std::function<void()>& call, int min_runs = 3);

// Print the header and one line: "family  what  ms  rate unit".
void PrintHeader();
void PrintFlops(const std::string& family, const std::string& what, double seconds, double flops);
void PrintBytes(const std::string& family, const std::string& what, double seconds, double bytes);

}  // namespace mt::kernels::bench
