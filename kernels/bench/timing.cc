// Wall clock and thread processor time through clock_gettime, and the table's columns.
#include "kernels/bench/timing.h"

#include <algorithm>
#include <cstdio>
#include <time.h>

#include <fmt/format.h>

namespace mt::kernels::bench {
namespace {

clockid_t clock_id = CLOCK_MONOTONIC;

void PrintLine(const std::string& family, const std::string& what, double seconds,
               const std::string& rate) {
  fmt::print("{:<11} {:<46} {:>10.3f} ms {:>16}\n", family, what, seconds * 1e3, rate);
  std::fflush(stdout);
}

}  // namespace

void UseProcessorTime() { clock_id = CLOCK_THREAD_CPUTIME_ID; }

double Now() {
  timespec now{};
  clock_gettime(clock_id, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double FastestSeconds(const std::function<void()>& call, int min_runs) {
  call();  // touches memory and fills caches
  double best = 1e300, total = 0;
  for (int run = 0; run < min_runs || total < 0.3; ++run) {
    const double start = Now();
    call();
    const double seconds = Now() - start;
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

void PrintHeader() {
  fmt::print("{:<11} {:<46} {:>13} {:>16}\n", "family", "shape", "time", "rate");
}

void PrintFlops(const std::string& family, const std::string& what, double seconds, double flops) {
  PrintLine(family, what, seconds, fmt::format("{:.1f} GFLOP/s", flops / seconds * 1e-9));
}

void PrintBytes(const std::string& family, const std::string& what, double seconds, double bytes) {
  PrintLine(family, what, seconds, fmt::format("{:.1f} GB/s", bytes / seconds * 1e-9));
}

}  // namespace mt::kernels::bench
