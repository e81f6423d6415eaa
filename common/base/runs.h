// Elements that lie in equal runs with gaps between them: `length` elements at the beginning of
// every `stride` places. The rows or columns of padded heads are such runs, a part of them begins
// `skip` elements within one. By default one element follows the other.
#pragma once

#include <cstdint>
#include <limits>

namespace mt::base {

struct Runs {
  int64_t length = 1;
  int64_t stride = 1;  // at least length
  int64_t skip = 0;    // elements of the first run that lie before element 0; below length

  constexpr bool contiguous() const { return length == stride; }
  // Place of element i, counted from that of element 0.
  constexpr int64_t At(int64_t i) const {
    if (contiguous()) return i;  // without divisions
    const int64_t from_run = skip + i;
    return from_run / length * stride + from_run % length - skip;
  }
  // Elements in places [0, places).
  constexpr int64_t CountIn(int64_t places) const {
    if (contiguous()) return places;
    const int64_t from_run = skip + places;
    const int64_t in_last = from_run % stride;
    return from_run / stride * length + (in_last < length ? in_last : length) - skip;
  }
  // Places from that of element 0 to behind the last of `count` elements; 0 of none.
  constexpr int64_t Span(int64_t count) const { return count == 0 ? 0 : At(count - 1) + 1; }
  // Elements from i on that follow each other.
  constexpr int64_t LeftInRun(int64_t i) const {
    if (contiguous()) return std::numeric_limits<int64_t>::max();
    return length - (skip + i) % length;
  }
  // The same elements counted from element i.
  constexpr Runs From(int64_t i) const {
    return {.length = length, .stride = stride, .skip = (skip + i) % length};
  }

  friend bool operator==(const Runs&, const Runs&) = default;
};

// Copies `count` elements of `element_bytes` that lie in runs behind each other. The ranges do not
// overlap.
void CopyFromRuns(const Runs& runs, int64_t count, int64_t element_bytes, const void* from,
                  void* to);
// And back; gaps are left as they are.
void CopyToRuns(const Runs& runs, int64_t count, int64_t element_bytes, const void* from, void* to);

}  // namespace mt::base
