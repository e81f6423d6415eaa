// A benchmark's report as text for people, the same from mtctl and from a rank that runs alone.
// Pure; thread-safe.
#pragma once

#include <string>

namespace megatrain::v1 {
class BenchReport;
}

namespace mt::report {

// Lines of a name and what was measured; with `bench.kernels` a table of kernels below. Scripts may
// rely on the line "step   median 62.312 ms, ...".
std::string BenchText(const megatrain::v1::BenchReport& report);

// "62.312 ms/step, 525,861 tokens/s, 0.615 G": a line of a job's description.
std::string BenchLine(const megatrain::v1::BenchReport& report);

}  // namespace mt::report
