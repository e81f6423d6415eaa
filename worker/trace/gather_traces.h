// The traces of all ranks at rank 0, by one clock.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/core/device.h"
#include "worker/comm/process_group.h"

namespace megatrain::v1 {
class JobTrace;
class RankTrace;
}  // namespace megatrain::v1

namespace mt::trace {

// Every rank's trace passes every other rank on its way, one at a time: of more ranks that takes
// too long.
inline constexpr int kMostTracedRanks = 256;

// Collective over `world` (nullptr: one rank) and blocking: fills `out` with every rank's trace on
// rank 0, and leaves it alone elsewhere. Ranks of one boot share a clock; those of other hosts are
// moved by the median of how much later or earlier they leave a few barriers, so that what is
// compared across hosts is right to some tens of microseconds. Errors are the group's.
Status GatherTraces(comm::ProcessGroup* world, kernels::Stream* stream, const base::Clock* clock,
                    const megatrain::v1::RankTrace& mine, megatrain::v1::JobTrace* out);

// How far the clock of the second times of the same barriers is ahead of the first's: the median.
int64_t ClockOffset(const std::vector<int64_t>& mine, const std::vector<int64_t>& other);

}  // namespace mt::trace
