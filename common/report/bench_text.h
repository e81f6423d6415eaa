// A benchmark's report as text for people, the same from mtctl and from a rank that runs without a
// coordinator. Pure; thread-safe.
#pragma once

#include <string>

namespace megatrain::v1 {
class BenchReport;
}

namespace mt::report {

// Lines of a name and a measurement; with `bench.kernels` a table of kernels follows. Scripts may
// rely on the line "step   median 62.312 ms, ...".
std::string BenchText(const megatrain::v1::BenchReport& report);

// One line for a job's description: "62.312 ms/step, 525,861 tokens/s, 0.615 G".
std::string BenchLine(const megatrain::v1::BenchReport& report);

}  // namespace mt::report
