// What communication took of a step by axis of the mesh, and how much of it computation hid: the
// spans of a few steps (worker/parallel/comm_spans.h), added up. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/parallel/comm_spans.h"

namespace mt::bench {

// Seconds, of which `end` is not a part.
struct Interval {
  double begin = 0;
  double end = 0;
};

// What any of the intervals covers: ascending, without contact among each other, none empty.
std::vector<Interval> Union(std::vector<Interval> intervals);
// How much of `whole` lies in `cover`, which is a result of Union.
double Covered(const Interval& whole, std::span<const Interval> cover);

// Of one axis, per step. Where two calls run at once, both count.
struct AxisTime {
  std::string axis;  // "tp"
  double calls = 0;
  double seconds = 0;  // within calls, waits for peers that come later included
  double exposed = 0;  // of these, while the compute stream waited for this axis
  double hidden() const { return seconds - exposed; }
};

// All axes that communicate in any job, in the order of parallel::kCommUses, with zeros where this
// rank has no such calls. Calls that were not timed count as long, and as much exposed, as those of
// their use that were; where of a use none was, for want of room, all is empty, as without steps.
std::vector<AxisTime> AxisTimes(const parallel::CommRecord& record);

}  // namespace mt::bench
