// Exposed is what lies in waits of the compute stream for the same axis or group, or in calls that
// it makes itself; each call by itself, so that what is timed can be scaled to what there was.
#include "worker/bench/axis_times.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/parallel/comm_spans.h"
#include "worker/trace/comm_streams.h"

namespace mt::bench {
namespace {

namespace v1 = megatrain::v1;
using report::TraceSpan;

std::string_view AxisOf(std::string_view group) {
  return parallel::TraitsOf(trace::UseOf(group)).axis;
}

// Adds when the compute stream did nothing but communicate in groups like `wanted`, or wait for
// them.
template <class Wanted>
void AddExposed(const v1::RankTrace& rank, const Wanted& wanted, std::vector<Interval>* found) {
  for (const v1::TraceStream& stream : rank.streams()) {
    if (stream.kind() != v1::TraceStream::EXPOSED) continue;
    for (const TraceSpan& span : report::SpansOf(rank, stream))
      if (wanted(span.label)) found->push_back({.begin = span.begin, .end = span.end});
  }
}

// Calls of a stream, per step.
struct Timed {
  double calls = 0;
  double seconds = 0;
  double exposed = 0;
};

// Of a stream with calls; `calls` alone where none of them was timed.
Timed TimedOf(const v1::RankTrace& rank, const v1::TraceStream& stream,
              std::span<const Interval> exposed) {
  const auto steps = static_cast<double>(rank.last_step() - rank.first_step() + 1);
  Timed timed{.calls = static_cast<double>(stream.calls()) / steps};
  const std::vector<TraceSpan> spans = report::SpansOf(rank, stream);
  int64_t nanos = 0, exposed_nanos = 0;
  for (const TraceSpan& span : spans) {
    nanos += span.end - span.begin;
    exposed_nanos +=
        std::min(span.end - span.begin, Covered({.begin = span.begin, .end = span.end}, exposed));
  }
  if (spans.empty()) return timed;
  const double scale = timed.calls / static_cast<double>(spans.size());
  timed.seconds = static_cast<double>(nanos) / 1e9 * scale;
  timed.exposed = static_cast<double>(exposed_nanos) / 1e9 * scale;
  return timed;
}

bool HasSteps(const v1::RankTrace& rank) { return rank.last_step() >= rank.first_step(); }

// True where a stream has calls, none of which was timed: what was would look like all there is.
bool LacksRoom(const v1::RankTrace& rank) {
  return std::ranges::any_of(rank.streams(), [](const v1::TraceStream& stream) {
    return stream.calls() > 0 && stream.label_size() == 0;
  });
}

const v1::RankTrace* FindRank(const v1::JobTrace& trace, int rank) {
  for (const v1::RankTrace& found : trace.ranks())
    if (found.rank() == rank) return &found;
  return nullptr;
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

int64_t Covered(const Interval& whole, std::span<const Interval> cover) {
  int64_t sum = 0;
  // From the first interval that ends behind the beginning.
  for (auto at = std::ranges::upper_bound(cover, whole.begin, {}, &Interval::end);
       at != cover.end() && at->begin < whole.end; ++at) {
    sum += std::min(whole.end, at->end) - std::max(whole.begin, at->begin);
  }
  return sum;
}

std::vector<AxisTime> AxisTimes(const v1::RankTrace& rank) {
  std::vector<AxisTime> times;
  if (!HasSteps(rank) || LacksRoom(rank)) return times;
  for (const parallel::CommUseTraits& use : parallel::kCommUses) {
    // Uses of one axis are neighbours.
    if (times.empty() || times.back().axis != use.axis)
      times.push_back({.axis = std::string(use.axis)});
  }
  for (AxisTime& time : times) {
    std::vector<Interval> found;
    AddExposed(
        rank, [&](std::string_view group) { return AxisOf(group) == time.axis; }, &found);
    const std::vector<Interval> exposed = Union(std::move(found));
    for (const v1::TraceStream& stream : rank.streams()) {
      if (stream.calls() == 0 || AxisOf(stream.name()) != time.axis) continue;
      const Timed timed = TimedOf(rank, stream, exposed);
      time.calls += timed.calls;
      time.seconds += timed.seconds;
      time.exposed += timed.exposed;
    }
  }
  return times;
}

std::vector<AxisTime> AxisTimes(const v1::JobTrace& trace) {
  std::vector<AxisTime> sums;
  std::vector<double> counts;
  for (const v1::RankTrace& rank : trace.ranks()) {
    const std::vector<AxisTime> times = AxisTimes(rank);
    if (times.empty()) return {};
    counts.resize(times.size());
    for (size_t i = 0; i < times.size(); ++i) {
      if (sums.size() <= i) sums.push_back({.axis = times[i].axis});
      if (times[i].calls == 0) continue;
      ++counts[i];
      sums[i].calls += times[i].calls;
      sums[i].seconds += times[i].seconds;
      sums[i].exposed += times[i].exposed;
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const double count = std::max(1.0, counts[i]);
    sums[i].calls /= count;
    sums[i].seconds /= count;
    sums[i].exposed /= count;
  }
  return sums;
}

std::vector<GroupTime> GroupTimes(const v1::JobTrace& trace) {
  std::map<std::pair<parallel::CommUse, std::string>, GroupTime> groups;
  for (const v1::RankTrace& rank : trace.ranks()) {
    if (!HasSteps(rank) || LacksRoom(rank)) return {};
    for (const v1::TraceStream& stream : rank.streams()) {
      if (stream.calls() == 0) continue;
      const auto wanted = [&](std::string_view group) { return group == stream.name(); };
      std::vector<Interval> found;
      AddExposed(rank, wanted, &found);
      if (stream.kind() == v1::TraceStream::LINK && stream.receiver() != rank.rank()) {
        const v1::RankTrace* const receiver = FindRank(trace, stream.receiver());
        if (receiver != nullptr) AddExposed(*receiver, wanted, &found);
      }
      const Timed timed = TimedOf(rank, stream, Union(std::move(found)));
      GroupTime& group = groups[{trace::UseOf(stream.name()), stream.name()}];
      ++group.ranks;
      group.calls += timed.calls;
      group.seconds += timed.seconds;
      group.exposed += timed.exposed;
      if (group.ranks > 1 && timed.exposed <= group.most_exposed) continue;
      group.most_exposed = timed.exposed;
      group.most_exposed_rank = rank.rank();
    }
  }
  std::vector<GroupTime> times;
  for (auto& [key, group] : groups) {
    group.axis = std::string(parallel::TraitsOf(key.first).axis);
    group.group = key.second;
    group.calls /= group.ranks;
    group.seconds /= group.ranks;
    group.exposed /= group.ranks;
    times.push_back(std::move(group));
  }
  return times;
}

}  // namespace mt::bench
