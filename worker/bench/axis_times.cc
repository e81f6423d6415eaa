// Exposed is what lies in waits of the compute stream for the same axis, or in calls that it makes
// itself; each call by itself, so that what is timed can be scaled to what there was.
#include "worker/bench/axis_times.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace mt::bench {
namespace {

using parallel::CommRecord;
using parallel::CommSpan;
using parallel::CommUse;
using parallel::SpanKind;

std::string_view AxisOf(const CommSpan& span) { return parallel::TraitsOf(span.use).axis; }

// When the compute stream did nothing but communicate along the axis, or wait for it.
std::vector<Interval> ExposedAlong(std::string_view axis, const CommRecord& record) {
  std::vector<Interval> found;
  for (const CommSpan& span : record.spans) {
    if (span.kind == SpanKind::kBeside || AxisOf(span) != axis) continue;
    found.push_back({.begin = span.begin, .end = span.end});
  }
  return Union(std::move(found));
}

// Calls of a use that were timed.
struct Timed {
  int64_t calls = 0;
  double seconds = 0;
  double exposed = 0;
};

Timed TimedOf(CommUse use, const CommRecord& record, std::span<const Interval> exposed) {
  Timed timed;
  for (const CommSpan& span : record.spans) {
    if (span.kind == SpanKind::kWait || span.use != use) continue;
    const double seconds = span.end - span.begin;
    ++timed.calls;
    timed.seconds += seconds;
    timed.exposed += std::min(seconds, Covered({.begin = span.begin, .end = span.end}, exposed));
  }
  return timed;
}

}  // namespace

std::vector<Interval> Union(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::vector<Interval> merged;
  for (const Interval& next : intervals) {
    if (next.end <= next.begin) continue;
    if (!merged.empty() && next.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, next.end);
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

double Covered(const Interval& whole, std::span<const Interval> cover) {
  double sum = 0;
  // From the first interval that ends behind the beginning.
  for (auto at = std::ranges::upper_bound(cover, whole.begin, {}, &Interval::end);
       at != cover.end() && at->begin < whole.end; ++at) {
    sum += std::min(whole.end, at->end) - std::max(whole.begin, at->begin);
  }
  return sum;
}

std::vector<AxisTime> AxisTimes(const CommRecord& record) {
  std::vector<AxisTime> times;
  if (record.steps == 0) return times;
  const auto steps = static_cast<double>(record.steps);
  for (size_t i = 0; i < parallel::kCommUses.size(); ++i) {
    const std::string_view axis = parallel::kCommUses[i].axis;
    // Uses of one axis are neighbours.
    if (times.empty() || times.back().axis != axis) times.push_back({.axis = std::string(axis)});
    if (record.calls[i] == 0) continue;
    const Timed timed = TimedOf(static_cast<CommUse>(i), record, ExposedAlong(axis, record));
    if (timed.calls == 0) return {};
    AxisTime& time = times.back();
    const auto calls = static_cast<double>(record.calls[i]);
    const double scale = calls / static_cast<double>(timed.calls) / steps;
    time.calls += calls / steps;
    time.seconds += scale * timed.seconds;
    time.exposed += scale * timed.exposed;
  }
  return times;
}

}  // namespace mt::bench
