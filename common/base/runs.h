// A one-dimensional strided layout: elements lie in equal runs with gaps between them, `length`
// elements at the beginning of every `stride` places. Rows or columns of padded attention heads are
// laid out so; a slice of them may begin `skip` elements within a run. The default is contiguous.
// Places are counted in elements. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <limits>

namespace mt::base {

struct Runs {
  int64_t length = 1;
  int64_t stride = 1;  // at least length
  int64_t skip = 0;    // elements of the first run that precede element 0; below length

  constexpr bool contiguous() const { return length == stride; }
  // Place of element i, relative to the place of element 0.
  constexpr int64_t At(int64_t i) const {
    if (contiguous()) return i;  // avoids the divisions
    const int64_t from_run = skip + i;
    return from_run / length * stride + from_run % length - skip;
  }
  // Number of elements that lie in the places [0, places).
  constexpr int64_t CountIn(int64_t places) const {
    if (contiguous()) return places;
    const int64_t from_run = skip + places;
    const int64_t in_last = from_run % stride;
    return from_run / stride * length + (in_last < length ? in_last : length) - skip;
  }
  // Places from that of element 0 up to and including the last of `count` elements; 0 where count
  // is 0.
  constexpr int64_t Span(int64_t count) const { return count == 0 ? 0 : At(count - 1) + 1; }
  // Number of contiguous elements from element i on.
  constexpr int64_t LeftInRun(int64_t i) const {
    if (contiguous()) return std::numeric_limits<int64_t>::max();
    return length - (skip + i) % length;
  }
  // The layout of the same elements with element i as element 0.
  constexpr Runs From(int64_t i) const {
    return {.length = length, .stride = stride, .skip = (skip + i) % length};
  }

  friend bool operator==(const Runs&, const Runs&) = default;
};

// Packs `count` elements of `element_bytes` bytes from the strided layout at `from` (the address of
// element 0) into contiguous memory at `to`. The ranges must not overlap. Host memory.
void CopyFromRuns(const Runs& runs, int64_t count, int64_t element_bytes, const void* from,
                  void* to);
// The inverse: unpacks into the strided layout. Gaps keep their content.
void CopyToRuns(const Runs& runs, int64_t count, int64_t element_bytes, const void* from, void* to);

}  // namespace mt::base
