// Draws a schedule's timeline as text: one line per stage, one cell per tick. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "worker/parallel/schedule/schedule.h"
#include "worker/parallel/schedule/simulate.h"

namespace mt::schedule {

// stage 0 |F0|F1|F2|F3|..|..|B0|B0|...; a backward of two ticks fills two cells, an idle tick is
// dots. Ends with a line on the bubble and one on the slots of each stage. A timeline wider than
// `width` columns is cut into pieces that follow each other, each under a line that names its
// ticks; 0: no limit. A piece has at least one tick.
std::string Print(const Schedule& schedule, const Timeline& timeline, size_t width = 0);

}  // namespace mt::schedule
