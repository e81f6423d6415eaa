// Draws a schedule's timeline as text, one line per stage and one cell per tick. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "worker/parallel/schedule/schedule.h"
#include "worker/parallel/schedule/simulate.h"

namespace mt::parallel {

// Text such as "stage 0 |F0|F1|F2|F3|..|..|B0|B0|": a backward of two ticks fills two cells, idle
// ticks are dots. Two lines at the end give the bubble and the slots of each stage. A timeline
// wider than `width` columns is divided into pieces of at least one tick, each under a line with
// its range of ticks; 0: no limit.
std::string PrintSchedule(const Schedule& schedule, const Timeline& timeline, size_t width = 0);

}  // namespace mt::parallel
