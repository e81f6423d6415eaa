// Timing of calls and the lines that the benchmark prints. The least of several runs is taken: what
// disturbs a run (other processes, interrupts) only ever adds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace mt::kernels::bench {

// Which clock Now() reads: the wall's, or the processor time of the calling thread, which is the
// same for one thread on an idle machine and comparable on a busy one. Set once, at the start.
void UseProcessorTime();

// Seconds since some fixed point.
double Now();

// Seconds of the fastest of at least `min_runs` calls, and of as many as fit into about 0.3 s.
double FastestSeconds(const std::function<void()>& call, int min_runs = 3);

// "family  what  ms  rate unit".
void PrintHeader();
void PrintFlops(const std::string& family, const std::string& what, double seconds, double flops);
void PrintBytes(const std::string& family, const std::string& what, double seconds, double bytes);

}  // namespace mt::kernels::bench
