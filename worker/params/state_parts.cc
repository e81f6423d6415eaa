// Intersects the replica's slice of a bucket with a parameter's elements and divides the result
// into rectangles. The arithmetic runs on logical elements, so that padded heads (ParamSpec::units)
// need no case of their own.
#include "worker/params/state_parts.h"

#include <algorithm>

namespace mt::params {
namespace {

// Elements [begin, end) of a row-major [rows, columns] matrix.
struct Run {
  int64_t begin = 0;
  int64_t end = 0;
};

// Divides the run into rectangles: the end of a row, whole rows, the beginning of a row.
std::vector<Run> Rectangles(Run run, int64_t columns) {
  std::vector<Run> rectangles;
  const auto add = [&](int64_t end) {
    if (end > run.begin) rectangles.push_back({run.begin, end});
    run.begin = std::max(run.begin, end);
  };
  const int64_t row = run.begin / columns;
  if (run.begin % columns != 0) add(std::min(run.end, (row + 1) * columns));
  add(run.end / columns * columns);
  add(run.end);
  return rectangles;
}

}  // namespace

std::vector<StatePart> StateParts(const ParamStore& store, ParamId id, PartsOf which) {
  const ParamSpec& spec = store.registry()[id];
  const int bucket = store.layout().BucketOf(id);
  const int64_t offset = store.layout().OffsetOf(id);
  const Slice slice =
      which == PartsOf::kOwnSlices ? store.OwnSlice(bucket) : store.UpdatedSlice(bucket);
  const kernels::Shape held = spec.Held();
  const base::Runs places = spec.Places();
  const int64_t columns = held.rank() == 2 ? held[1] : 1;
  // The intersection of slice and parameter, in elements of the held block.
  const auto held_before = [&](int64_t element) {
    return std::min(places.CountIn(std::max<int64_t>(element - offset, 0)), held.NumElements());
  };
  const Run run{.begin = held_before(slice.begin), .end = held_before(slice.begin + slice.count)};

  std::vector<StatePart> parts;
  if (run.begin >= run.end) return parts;
  for (const Run& r : Rectangles(run, columns)) {
    const int64_t count = r.end - r.begin;
    const int64_t rows = (count + columns - 1) / columns;
    const int64_t width = std::min(count, columns);
    const base::Runs own = places.From(r.begin);
    const ParamStore::State state =
        store.StateOf(bucket, {.begin = offset + places.At(r.begin), .count = own.Span(count)});
    StatePart part;
    part.begin = {spec.begin[0] + r.begin / columns, spec.begin[1] + r.begin % columns};
    part.shape = held.rank() == 2 ? kernels::Shape{rows, width} : kernels::Shape{rows};
    part.places = own;
    part.master = state.master;
    part.m = state.m;
    part.v = state.v;
    parts.push_back(part);
  }
  return parts;
}

}  // namespace mt::params
