// Threads of a rank on a CPU slot in tests of what computes: one, or what MT_TEST_THREADS says.
// `scripts/test.sh --full=processors` has them run with one and with two.
#pragma once

#include <cstdlib>

namespace mt {

inline int ComputeThreads() {
  const char* const said = std::getenv("MT_TEST_THREADS");
  return said == nullptr ? 1 : std::atoi(said);
}

}  // namespace mt
