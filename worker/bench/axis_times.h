// What communication took of a step by axis of the mesh, by group and by link, and how much of it
// computation hid: the traces of a few steps (worker/trace), added up. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace megatrain::v1 {
class JobTrace;
class RankTrace;
}  // namespace megatrain::v1

namespace mt::bench {

// Of one clock, in nanoseconds; `end` is not a part.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

// What any of the intervals covers: ascending, without contact among each other, none empty.
std::vector<Interval> Union(std::vector<Interval> intervals);
// How much of `whole` lies in `cover`, which is a result of Union.
int64_t Covered(const Interval& whole, std::span<const Interval> cover);

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
// their group that were; where of a group none was, for want of room, all is empty, as without
// steps.
std::vector<AxisTime> AxisTimes(const megatrain::v1::RankTrace& trace);
// The same of all ranks: of each axis the mean over those that have calls of it. Empty where one
// rank's is.
std::vector<AxisTime> AxisTimes(const megatrain::v1::JobTrace& trace);

// Of one kind of groups, or of one link of each pipeline: the mean over the ranks that make its
// calls, per step.
struct GroupTime {
  std::string axis;
  std::string group;  // "dp-reduce", "pp-act 0>1"
  int ranks = 0;
  double calls = 0;
  double seconds = 0;
  double exposed = 0;  // while the compute stream waited for this group; of a link either end's
  double most_exposed = 0;
  int most_exposed_rank = 0;
  double hidden() const { return seconds - exposed; }
};

// The groups and links that have calls, in the order of parallel::kCommUses, links by name. What
// was not timed counts as in AxisTimes.
std::vector<GroupTime> GroupTimes(const megatrain::v1::JobTrace& trace);

}  // namespace mt::bench
