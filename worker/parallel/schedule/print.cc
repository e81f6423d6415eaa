// Cells have the width of the longest label, so that ticks line up across stages and pieces.
#include "worker/parallel/schedule/print.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace mt::parallel {
namespace {

size_t CellWidth(const Schedule& schedule) {
  size_t width = 1;
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions)
      width = std::max(width, ActionLabel(schedule, action).size());
  }
  return width;
}

constexpr size_t kStageColumns = 9;

// The cells of one stage: a label or dots for each tick.
std::vector<std::string> Cells(const Schedule& schedule, const Timeline& timeline, size_t stage) {
  const size_t width = CellWidth(schedule);
  std::vector<std::string> cells(static_cast<size_t>(timeline.end), std::string(width, '.'));
  for (size_t i = 0; i < schedule.actions[stage].size(); ++i) {
    const ScheduleSpan& span = timeline.actions[stage][i];
    const std::string label =
        fmt::format("{:<{}}", ActionLabel(schedule, schedule.actions[stage][i]), width);
    for (int64_t tick = span.begin; tick < span.end; ++tick) {
      cells[static_cast<size_t>(tick)] = label;
    }
  }
  return cells;
}

// Number of ticks that fit beside the stage's name, at least 1.
size_t TicksPerLine(const Schedule& schedule, size_t width, size_t ticks) {
  if (width == 0) return ticks;
  const size_t room = width > kStageColumns + 1 ? width - kStageColumns - 1 : 0;
  return std::clamp(room / (CellWidth(schedule) + 1), size_t{1}, ticks);
}

}  // namespace

std::string PrintSchedule(const Schedule& schedule, const Timeline& timeline, size_t width) {
  std::vector<std::vector<std::string>> cells;
  for (size_t stage = 0; stage < schedule.actions.size(); ++stage) {
    cells.push_back(Cells(schedule, timeline, stage));
  }
  const auto ticks = static_cast<size_t>(timeline.end);
  const size_t step = TicksPerLine(schedule, width, ticks);
  std::string text;
  for (size_t first = 0; first < ticks; first += step) {
    const size_t end = std::min(first + step, ticks);
    if (step < ticks) text += fmt::format("ticks {} to {}\n", first, end - 1);
    for (size_t stage = 0; stage < cells.size(); ++stage) {
      text += fmt::format("{:<{}}|", fmt::format("stage {}", stage), kStageColumns);
      for (size_t tick = first; tick < end; ++tick) text += cells[stage][tick] + "|";
      text += "\n";
    }
  }
  const int64_t busy = timeline.end - timeline.bubble;
  text +=
      fmt::format("bubble {} of {} ticks ({:.1f} % over the work)\n", timeline.bubble, timeline.end,
                  100.0 * static_cast<double>(timeline.bubble) / static_cast<double>(busy));
  text += "slots";
  for (size_t stage = 0; stage < schedule.slots.size(); ++stage) {
    text += fmt::format("{}{}:", stage == 0 ? " " : ", ", stage);
    for (const int count : schedule.slots[stage]) text += fmt::format(" {}", count);
  }
  return text + "\n";
}

}  // namespace mt::parallel
