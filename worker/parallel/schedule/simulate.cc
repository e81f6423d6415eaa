// A fixed-point iteration: every stage's next action and every link's next transfer run as soon as
// their inputs have times. The order of the loop does not matter, because each start time is a
// maximum over known times.
#include "worker/parallel/schedule/simulate.h"

#include <algorithm>
#include <string>

namespace mt::parallel {
namespace {

constexpr int64_t kNever = -1;

// Arrival and release times of one slot of one chunk on one stage.
struct SlotTimes {
  int64_t activation_in = kNever;
  int64_t gradient_in = kNever;
  int64_t released = 0;  // free for the next microbatch
  // When the slot's last output has been sent, if no later event implies it: that of the gradient,
  // or in a forward-only pass that of the activation.
  int64_t output_sent = 0;
  bool output_pending = false;  // computed but not yet sent
  bool occupied = false;        // an activation has arrived, or its transfer has begun
};

// An output that waits for its link.
struct Transfer {
  ActionKind kind;
  int chunk;
  int slot;
  int peer_chunk;
  int peer_slot;
  int64_t produced;
};

struct Link {
  std::vector<Transfer> queue;
  size_t next = 0;
  int64_t free_at = 0;
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const ScheduleCosts& costs)
      : schedule_(schedule), costs_(costs) {
    const auto stages = static_cast<size_t>(schedule.stages);
    next_.resize(stages, 0);
    free_at_.resize(stages, 0);
    activation_out_.resize(stages);
    gradient_out_.resize(stages);
    timeline_.actions.resize(stages);
    slots_.resize(stages);
    for (size_t stage = 0; stage < stages; ++stage) {
      for (const int count : schedule.slots[stage]) {
        slots_[stage].emplace_back(static_cast<size_t>(count));
      }
    }
  }

  StatusOr<Timeline> Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int stage = 0; stage < schedule_.stages; ++stage) {
        while (RunAction(stage)) moved = true;
        while (RunTransfer(stage, schedule_.next_stage(stage), &activation_out_)) moved = true;
        while (RunTransfer(stage, schedule_.previous_stage(stage), &gradient_out_)) moved = true;
      }
    }
    RETURN_IF_ERROR(CheckFinished());
    for (const auto& spans : timeline_.actions) {
      for (const ScheduleSpan& span : spans) timeline_.end = std::max(timeline_.end, span.end);
    }
    for (const auto& spans : timeline_.actions) {
      int64_t busy = 0;
      for (const ScheduleSpan& span : spans) busy += span.end - span.begin;
      timeline_.bubble = std::max(timeline_.bubble, timeline_.end - busy);
    }
    return std::move(timeline_);
  }

 private:
  SlotTimes& SlotOf(int stage, int chunk, int slot) {
    return slots_[static_cast<size_t>(stage)][static_cast<size_t>(chunk)]
                 [static_cast<size_t>(slot)];
  }

  // Runs the stage's next action if its inputs are known; false if it cannot run yet.
  bool RunAction(int stage) {
    const auto s = static_cast<size_t>(stage);
    if (next_[s] == schedule_.actions[s].size()) return false;
    const Action& action = schedule_.actions[s][next_[s]];
    const bool forward = action.kind == ActionKind::kForward;
    const bool last =
        !forward || schedule_.forward_only;  // last action of the microbatch in this slot
    SlotTimes& slot = SlotOf(stage, action.chunk, action.slot);
    int64_t begin = free_at_[s];
    if (action.receives) {
      const int64_t input = forward ? slot.activation_in : slot.gradient_in;
      if (input == kNever) return false;
      begin = std::max(begin, input);
    } else if (forward && slot.occupied) {
      return false;  // its earlier microbatch is still in flight
    }
    if (last) {
      if (slot.output_pending) return false;
      begin = std::max(begin, slot.output_sent);
    }
    const int64_t end = begin + (forward ? costs_.forward : costs_.backward);
    timeline_.actions[s].push_back({begin, end});
    free_at_[s] = end;
    ++next_[s];
    slot.occupied = true;
    if (last) {
      slot = {.released = end, .output_sent = slot.output_sent, .output_pending = action.sends};
    }
    if (action.sends) {
      (forward ? activation_out_ : gradient_out_)[s].queue.push_back(
          {action.kind, action.chunk, action.slot, action.peer_chunk, action.peer_slot, end});
    }
    return true;
  }

  // Runs the next transfer of a link if its receiver's slot is free; false if it cannot run yet.
  bool RunTransfer(int stage, int peer, std::vector<Link>* links) {
    Link& link = (*links)[static_cast<size_t>(stage)];
    if (link.next == link.queue.size()) return false;
    const Transfer& transfer = link.queue[link.next];
    SlotTimes& target = SlotOf(peer, transfer.peer_chunk, transfer.peer_slot);
    int64_t* arrival = &target.gradient_in;
    if (transfer.kind == ActionKind::kForward) {
      if (target.occupied) return false;
      arrival = &target.activation_in;
    } else if (target.gradient_in != kNever || !target.occupied) {
      return false;  // earlier gradient not consumed, or forward not run
    }
    const int64_t begin = std::max({transfer.produced, link.free_at, target.released});
    const int64_t end = begin + costs_.transfer;
    *arrival = end;
    target.occupied = true;
    if (transfer.kind == ActionKind::kBackward || schedule_.forward_only) {
      SlotTimes& own = SlotOf(stage, transfer.chunk, transfer.slot);
      own.output_sent = end;
      own.output_pending = false;
    }
    link.free_at = end;
    ++link.next;
    return true;
  }

  Status CheckFinished() const {
    std::string stuck;
    for (size_t stage = 0; stage < next_.size(); ++stage) {
      if (next_[stage] == schedule_.actions[stage].size()) continue;
      stuck += fmt::format("{}stage {} at {}", stuck.empty() ? "" : ", ", stage,
                           ActionLabel(schedule_, schedule_.actions[stage][next_[stage]]));
    }
    if (stuck.empty()) return OkStatus();
    return base::FailedPrecondition("the schedule deadlocks: {} wait for each other", stuck);
  }

  const Schedule& schedule_;
  const ScheduleCosts costs_;
  std::vector<size_t> next_;      // [stage] index of its next action
  std::vector<int64_t> free_at_;  // [stage] end of its last action
  std::vector<Link> activation_out_;
  std::vector<Link> gradient_out_;
  std::vector<std::vector<std::vector<SlotTimes>>> slots_;  // [stage][chunk][slot]
  Timeline timeline_;
};

}  // namespace

StatusOr<Timeline> SimulateSchedule(const Schedule& schedule, const ScheduleCosts& costs) {
  return Simulation(schedule, costs).Run();
}

}  // namespace mt::parallel
