#include "worker/parallel/schedule/print.h"

#include <algorithm>

namespace mt::schedule {
namespace {

size_t CellWidth(const Schedule& schedule) {
  size_t width = 1;
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions) width = std::max(width, Label(schedule, action).size());
  }
  return width;
}

std::string StageLine(const Schedule& schedule, const Timeline& timeline, size_t stage) {
  const size_t width = CellWidth(schedule);
  const std::string idle = std::string(width, '.') + "|";
  std::string line = fmt::format("stage {:<3}|", stage);
  int64_t now = 0;
  const auto idle_until = [&](int64_t tick) {
    for (; now < tick; ++now) line += idle;
  };
  for (size_t i = 0; i < schedule.actions[stage].size(); ++i) {
    const Span& span = timeline.actions[stage][i];
    idle_until(span.begin);
    for (; now < span.end; ++now) {
      line += fmt::format("{:<{}}|", Label(schedule, schedule.actions[stage][i]), width);
    }
  }
  idle_until(timeline.end);
  return line;
}

}  // namespace

std::string Print(const Schedule& schedule, const Timeline& timeline) {
  std::string text;
  for (size_t stage = 0; stage < schedule.actions.size(); ++stage) {
    text += StageLine(schedule, timeline, stage) + "\n";
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

}  // namespace mt::schedule
