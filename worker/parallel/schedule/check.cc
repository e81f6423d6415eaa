// Rules 1 and 2 replay each stage's list, rule 3 compares the two lists of each link, rule 4
// simulates the whole schedule twice.
#include "worker/parallel/schedule/check.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "worker/parallel/schedule/simulate.h"

namespace mt::parallel {
namespace {

Status Fault(const Schedule& schedule, int stage, const Action& action, std::string_view what) {
  return base::FailedPrecondition("stage {}, {}: {}", stage, ActionLabel(schedule, action), what);
}

// Replays one stage's list and tracks the microbatches in each chunk's slots.
class StageCheck {
 public:
  StageCheck(const Schedule& schedule, int stage)
      : schedule_(schedule),
        stage_(stage),
        slots_(schedule.slots[static_cast<size_t>(stage)]),
        forwards_(slots_.size(), 0),
        backwards_(slots_.size(), 0) {
    for (const int count : slots_) holds_.emplace_back(static_cast<size_t>(std::max(count, 0)), -1);
  }

  Status Run() {
    for (const Action& action : schedule_.actions[static_cast<size_t>(stage_)]) {
      RETURN_IF_ERROR(Step(action));
    }
    const int backwards = schedule_.forward_only ? 0 : schedule_.microbatches;
    for (size_t chunk = 0; chunk < slots_.size(); ++chunk) {
      if (forwards_[chunk] == schedule_.microbatches && backwards_[chunk] == backwards) continue;
      return base::FailedPrecondition("stage {}, chunk {}: {} forwards and {} backwards of {}",
                                      stage_, chunk, forwards_[chunk], backwards_[chunk],
                                      schedule_.microbatches);
    }
    return OkStatus();
  }

 private:
  Status Step(const Action& action) {
    const auto chunk = static_cast<size_t>(action.chunk);
    if (action.chunk < 0 || chunk >= slots_.size()) return At(action, "no such chunk");
    if (action.slot < 0 || action.slot >= slots_[chunk]) return At(action, "no such slot");
    int& held = holds_[chunk][static_cast<size_t>(action.slot)];
    if (action.kind == ActionKind::kForward) {
      if (action.microbatch != forwards_[chunk]++) return At(action, "out of order");
      if (held != -1) return At(action, "its slot is in use");
      if (!schedule_.forward_only) held = action.microbatch;
      return OkStatus();
    }
    if (action.microbatch != backwards_[chunk]++) return At(action, "out of order");
    if (held != action.microbatch) return At(action, "its slot does not hold its forward");
    held = -1;
    return OkStatus();
  }

  Status At(const Action& action, std::string_view what) const {
    return Fault(schedule_, stage_, action, what);
  }

  const Schedule& schedule_;
  const int stage_;
  const std::vector<int>& slots_;
  std::vector<int> forwards_;  // [chunk] number done so far
  std::vector<int> backwards_;
  std::vector<std::vector<int>> holds_;  // [chunk][slot] microbatch; -1: free
};

// The identity of a transfer: (microbatch, receiver's chunk, receiver's slot).
using SentPart = std::tuple<int, int, int>;

Status CheckLink(const Schedule& schedule, int stage, ActionKind kind) {
  const int peer =
      kind == ActionKind::kForward ? schedule.next_stage(stage) : schedule.previous_stage(stage);
  std::vector<SentPart> sent;
  for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
    if (action.kind != kind || !action.sends) continue;
    sent.emplace_back(action.microbatch, action.peer_chunk, action.peer_slot);
  }
  size_t next = 0;
  for (const Action& action : schedule.actions[static_cast<size_t>(peer)]) {
    if (action.kind != kind || !action.receives) continue;
    if (next == sent.size()) return Fault(schedule, peer, action, "nobody sends its input");
    if (sent[next++] != SentPart(action.microbatch, action.chunk, action.slot)) {
      return Fault(schedule, peer, action,
                   fmt::format("stage {} sends something else at this point", stage));
    }
  }
  if (next == sent.size()) return OkStatus();
  return base::FailedPrecondition("stage {} sends {} that stage {} does not receive", stage,
                                  sent.size() - next, peer);
}

}  // namespace

Status CheckSchedule(const Schedule& schedule) {
  for (int stage = 0; stage < schedule.stages; ++stage) {
    RETURN_IF_ERROR(StageCheck(schedule, stage).Run());
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    RETURN_IF_ERROR(CheckLink(schedule, stage, ActionKind::kForward));
    RETURN_IF_ERROR(CheckLink(schedule, stage, ActionKind::kBackward));
  }
  RETURN_IF_ERROR(SimulateSchedule(schedule, {}).status());
  return SimulateSchedule(schedule, {.forward = 1, .backward = 2, .transfer = 7}).status();
}

}  // namespace mt::parallel
