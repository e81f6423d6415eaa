// A fixed-point iteration over counters: how far each stage is in its list, and how many transfers
// each link has done. The order of the loop does not matter, since no wait that is over begins
// anew.
#include "worker/parallel/schedule/rendezvous.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace mt::parallel {
namespace {

constexpr int kNone = -1;
constexpr std::array kActionKinds = {ActionKind::kForward, ActionKind::kBackward};

// Numbers count the transfers of one link; actions are indices in the stage's list.
struct Step {
  bool receives = false, sends = false;
  ActionKind kind = ActionKind::kForward;
  int received = kNone;                 // the number of its input
  std::array<int, 2> sent_before = {};  // transfers that must have left before it, by kind
  int sent_behind = 0;                  // of its own kind, before the next action
};

class Stage {
 public:
  Stage(const Schedule& schedule, int stage, int ahead) {
    for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
      const bool between = action.receives && action.sends;
      const int position = schedule.position(stage, action.chunk);
      Add(schedule, action, ahead, between && std::ranges::count(schedule.hand_on, position) > 0);
    }
  }

  bool done() const { return at_ == 2 * static_cast<int>(steps_.size()); }
  // Goes on as far as the transfers allow; whether that was any way.
  bool Advance(const std::array<int, 2>& in, const std::array<int, 2>& out) {
    const int before = at_;
    while (!done() && MayPass(in, out)) ++at_;
    return at_ > before;
  }
  // How many transfers the stage has produced, and how many it has begun to receive.
  int Produced(ActionKind kind) const { return CountReached(produced_[Index(kind)]); }
  int Begun(ActionKind kind) const { return CountReached(begun_[Index(kind)]); }

 private:
  using Slot = std::pair<int, int>;  // chunk and slot
  static size_t Index(ActionKind kind) { return static_cast<size_t>(kind); }

  // Points of the stage's stream: 2 i is before action i, 2 i + 1 where it has all that it waits
  // for.
  bool MayPass(const std::array<int, 2>& in, const std::array<int, 2>& out) const {
    const Step& step = steps_[static_cast<size_t>(at_ / 2)];
    if (at_ % 2 == 1) return out[Index(step.kind)] >= step.sent_behind;
    return (!step.receives || in[Index(step.kind)] > step.received) &&
           out[0] >= step.sent_before[0] && out[1] >= step.sent_before[1];
  }
  // `points` rise.
  int CountReached(const std::vector<int>& points) const {
    return static_cast<int>(std::ranges::upper_bound(points, at_) - points.begin());
  }

  void Add(const Schedule& schedule, const Action& action, int ahead, bool hands_on) {
    const int index = static_cast<int>(steps_.size());
    const Slot slot{action.chunk, action.slot};
    const bool forward = action.kind == ActionKind::kForward;
    Step step{.receives = action.receives, .sends = action.sends, .kind = action.kind};
    // The waits of Executor::RunForward and RunBackward.
    const auto await = [&](ActionKind kind) {
      const auto latest = latest_[Index(kind)].find(slot);
      if (latest != latest_[Index(kind)].end()) step.sent_before[Index(kind)] = latest->second;
    };
    if (action.sends || (forward && schedule.num_positions() > 1)) {
      await(forward && !action.sends ? ActionKind::kBackward : action.kind);
    }
    if (!forward && hands_on) await(ActionKind::kForward);
    if (action.receives) {
      step.received = static_cast<int>(begun_[Index(action.kind)].size());
      begun_[Index(action.kind)].push_back(BeginOf(action, index, ahead));
    }
    if (action.sends) {
      produced_[Index(action.kind)].push_back(2 * index + 1);
      const int number = static_cast<int>(produced_[Index(action.kind)].size());
      latest_[Index(action.kind)][slot] = number;
      if (hands_on && (!forward || schedule.forward_only)) step.sent_behind = number;
    }
    steps_.push_back(step);
    if (!forward || schedule.forward_only) released_[Index(ActionKind::kForward)][slot] = index;
    if (!forward) released_[Index(ActionKind::kBackward)][slot] = index;
  }

  // The point at which the receive of an action's input begins: behind that of the link's one
  // before, and behind the action that released the slot.
  int BeginOf(const Action& action, int index, int ahead) const {
    const auto& released = released_[Index(action.kind)];
    const auto free = released.find({action.chunk, action.slot});
    const int from = std::max(free == released.end() ? 0 : free->second + 1, index - ahead);
    const int point = from < index ? 2 * std::max(from, 0) + 1 : 2 * index;
    const std::vector<int>& begun = begun_[Index(action.kind)];
    return begun.empty() ? point : std::max(point, begun.back());
  }

  std::vector<Step> steps_;
  std::array<std::vector<int>, 2> begun_, produced_;  // points, by kind
  std::array<std::map<Slot, int>, 2> latest_;         // transfers up to the slot's latest
  std::array<std::map<Slot, int>, 2> released_;       // by which action
  int at_ = 0;
};

}  // namespace

bool EndsByRendezvous(const Schedule& schedule, int ahead) {
  std::vector<Stage> stages;
  stages.reserve(static_cast<size_t>(schedule.stages));
  for (int stage = 0; stage < schedule.stages; ++stage) stages.emplace_back(schedule, stage, ahead);
  // Transfers done, by receiving and by sending stage.
  std::vector<std::array<int, 2>> in(stages.size()), out(stages.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < schedule.stages; ++stage) {
      const auto s = static_cast<size_t>(stage);
      moved = stages[s].Advance(in[s], out[s]) || moved;
      for (const ActionKind kind : kActionKinds) {
        const int peer = kind == ActionKind::kForward ? schedule.next_stage(stage)
                                                      : schedule.previous_stage(stage);
        const auto p = static_cast<size_t>(peer);
        const auto k = static_cast<size_t>(kind);
        const int done = std::min(stages[s].Produced(kind), stages[p].Begun(kind));
        moved = moved || done > out[s][k];
        out[s][k] = in[p][k] = std::max(out[s][k], done);
      }
    }
  }
  return std::ranges::all_of(stages, [](const Stage& stage) { return stage.done(); });
}

int ReceivesAhead(const Schedule& schedule) {
  const size_t most = schedule.actions.empty() ? 0 : schedule.actions[0].size();
  for (int ahead = 1; ahead <= static_cast<int>(most); ++ahead) {
    if (EndsByRendezvous(schedule, ahead)) return ahead;
  }
  CHECK(false) << "a schedule that does not end";
  return 0;
}

}  // namespace mt::parallel
