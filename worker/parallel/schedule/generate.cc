// All schedules are one pattern with different numbers: warm-up forwards, then one forward and one
// backward alternately, then the remaining backwards. GPipe's warm-up is the whole batch. Slots and
// links are derived from the resulting lists.
#include "worker/parallel/schedule/generate.h"

#include <algorithm>
#include <utility>

namespace mt::parallel {
namespace {

Status CheckInterleaved(const ScheduleRequest& request, int group) {
  if (request.stages < 2) {
    return base::InvalidArgument("the interleaved schedule needs 2 or more pipeline stages, not {}",
                                 request.stages);
  }
  if (group < request.stages) {
    return base::InvalidArgument("the microbatch group {} is below the {} pipeline stages", group,
                                 request.stages);
  }
  if (request.microbatches % group == 0) return OkStatus();
  const int below = request.microbatches / group * group;
  return base::InvalidArgument(
      "{} microbatches are not a multiple of the interleaved group {}; nearest: {}{}",
      request.microbatches, group, below > 0 ? fmt::format("{} or ", below) : "", below + group);
}

Status CheckRequest(const ScheduleRequest& request, int group) {
  if (request.stages < 1 || request.microbatches < 1 || request.chunks < 1 || group < 1) {
    return base::InvalidArgument(
        "{} stages, {} microbatches, {} chunks, group {}: all must be at least 1", request.stages,
        request.microbatches, request.chunks, group);
  }
  if (request.kind == ScheduleKind::kInterleaved) return CheckInterleaved(request, group);
  if (request.chunks == 1) return OkStatus();
  return base::InvalidArgument("{} chunks per stage need the interleaved schedule, not {}",
                               request.chunks, Name(request.kind));
}

// The order of all forwards, and how many of them run before the first backward.
struct StagePlan {
  std::vector<InterleavedTurn> turns;
  int warmup = 0;
};

int Warmup(const ScheduleRequest& request, int stage, int group) {
  const int total = request.microbatches * request.chunks;
  switch (request.kind) {
    case ScheduleKind::kGPipe:
      return total;
    case ScheduleKind::kOneFOneB:
      return std::min(request.stages - stage - 1, total);
    case ScheduleKind::kInterleaved:
      return std::min(2 * (request.stages - stage - 1) + (request.chunks - 1) * group, total);
  }
  return total;
}

// Warm-up forwards, then one forward and one backward alternately, then the remaining backwards.
std::vector<Action> OrderActions(const ScheduleRequest& request,
                                 const std::vector<InterleavedTurn>& turns, int warmup) {
  const auto total = turns.size();
  const auto backward = [&](size_t n) {
    return Action{.kind = ActionKind::kBackward,
                  .microbatch = turns[n].microbatch,
                  .chunk = request.chunks - 1 - turns[n].chunk};
  };
  std::vector<Action> actions;
  size_t done = 0;
  for (size_t n = 0; n < total; ++n) {
    actions.push_back({.microbatch = turns[n].microbatch, .chunk = turns[n].chunk});
    if (n >= static_cast<size_t>(warmup)) actions.push_back(backward(done++));
  }
  while (done < total) actions.push_back(backward(done++));
  return actions;
}

// The largest number of microbatches in flight per chunk. Within a chunk forwards and backwards
// both run in ascending order, so microbatch i can use slot i modulo this number.
std::vector<int> LargestInFlight(const std::vector<Action>& actions, int chunks) {
  std::vector<int> now(static_cast<size_t>(chunks), 0);
  std::vector<int> largest = now;
  for (const Action& action : actions) {
    const auto chunk = static_cast<size_t>(action.chunk);
    now[chunk] += action.kind == ActionKind::kForward ? 1 : -1;
    largest[chunk] = std::max(largest[chunk], now[chunk]);
  }
  return largest;
}

// Fills in an action's slot, and whether and where it receives and sends.
void Connect(Schedule* schedule, int stage, Action* action) {
  const auto slots_of = [&](int at_stage, int chunk) {
    return schedule->slots[static_cast<size_t>(at_stage)][static_cast<size_t>(chunk)];
  };
  const bool forward = action->kind == ActionKind::kForward;
  const int position = schedule->position(stage, action->chunk);
  const bool first = position == 0;
  const bool last = position == schedule->num_positions() - 1;
  action->slot = action->microbatch % slots_of(stage, action->chunk);
  action->receives = forward ? !first : !last;
  action->sends = forward ? !last : !first;
  if (!action->sends) return;
  const int peer = forward ? position + 1 : position - 1;
  action->peer_chunk = peer / schedule->stages;
  action->peer_slot = action->microbatch % slots_of(peer % schedule->stages, action->peer_chunk);
}

}  // namespace

std::vector<InterleavedTurn> InterleavedOrder(int microbatches, int chunks, int group) {
  std::vector<InterleavedTurn> turns;
  for (int first = 0; first < microbatches; first += group) {
    const int end = std::min(first + group, microbatches);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int microbatch = first; microbatch < end; ++microbatch) {
        turns.push_back({microbatch, chunk});
      }
    }
  }
  return turns;
}

StatusOr<Schedule> GenerateSchedule(const ScheduleRequest& request) {
  const int group = request.group == 0 ? request.stages : request.group;
  RETURN_IF_ERROR(CheckRequest(request, group));
  const bool interleaved = request.kind == ScheduleKind::kInterleaved;
  const std::vector<InterleavedTurn> turns = InterleavedOrder(
      request.microbatches, request.chunks, interleaved ? group : request.microbatches);
  Schedule schedule{.kind = request.kind,
                    .stages = request.stages,
                    .microbatches = request.microbatches,
                    .chunks = request.chunks,
                    .hand_on = request.hand_on};
  for (int stage = 0; stage < request.stages; ++stage) {
    auto actions = OrderActions(request, turns, Warmup(request, stage, group));
    schedule.slots.push_back(LargestInFlight(actions, request.chunks));
    schedule.actions.push_back(std::move(actions));
  }
  for (int stage = 0; stage < request.stages; ++stage) {
    for (Action& action : schedule.actions[static_cast<size_t>(stage)]) {
      Connect(&schedule, stage, &action);
    }
  }
  return schedule;
}

Schedule ForwardOnly(const Schedule& training, int microbatches) {
  Schedule schedule = training;
  schedule.microbatches = microbatches;
  schedule.forward_only = true;
  const std::vector<InterleavedTurn> turns =
      InterleavedOrder(microbatches, training.chunks, training.stages);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    auto& actions = schedule.actions[static_cast<size_t>(stage)];
    actions.clear();
    for (const InterleavedTurn& turn : turns) {
      actions.push_back({.microbatch = turn.microbatch, .chunk = turn.chunk});
      Connect(&schedule, stage, &actions.back());
    }
  }
  return schedule;
}

std::string_view Name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return "gpipe";
    case ScheduleKind::kOneFOneB:
      return "1f1b";
    case ScheduleKind::kInterleaved:
      return "interleaved";
  }
  return "";
}

std::string ActionLabel(const Schedule& schedule, const Action& action) {
  const char letter = action.kind == ActionKind::kForward ? 'F' : 'B';
  if (schedule.chunks == 1) return fmt::format("{}{}", letter, action.microbatch);
  return fmt::format("{}{}.{}", letter, action.microbatch, action.chunk);
}

}  // namespace mt::parallel
