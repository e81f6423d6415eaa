// Strided copies: one memcpy per run, which is one for all where the elements are contiguous.
#include "common/base/runs.h"

#include <algorithm>
#include <cstring>

namespace mt::base {
namespace {

// Calls fn(index of the run's first element, its place, number of elements) for each run that the
// elements [0, count) touch.
template <class Fn>
void ForEachRun(const Runs& runs, int64_t count, const Fn& fn) {
  for (int64_t i = 0; i < count;) {
    const int64_t n = std::min(count - i, runs.LeftInRun(i));
    fn(i, runs.At(i), n);
    i += n;
  }
}

}  // namespace

void CopyFromRuns(const Runs& runs, int64_t count, int64_t element_bytes, const void* from,
                  void* to) {
  ForEachRun(runs, count, [&](int64_t i, int64_t place, int64_t n) {
    std::memcpy(static_cast<char*>(to) + i * element_bytes,
                static_cast<const char*>(from) + place * element_bytes,
                static_cast<size_t>(n * element_bytes));
  });
}

void CopyToRuns(const Runs& runs, int64_t count, int64_t element_bytes, const void* from,
                void* to) {
  ForEachRun(runs, count, [&](int64_t i, int64_t place, int64_t n) {
    std::memcpy(static_cast<char*>(to) + place * element_bytes,
                static_cast<const char*>(from) + i * element_bytes,
                static_cast<size_t>(n * element_bytes));
  });
}

}  // namespace mt::base
