// The moves of ranks and allocations; reports may skip moves, so ranks go by the closure.
#include "daemon/jobs/rank_states.h"

#include <array>

#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

struct RankMove {
  v1::RankState from;
  v1::RankState to;
};

// Single moves of a living rank (docs/design/control-plane.md#rank-states).
constexpr std::array kRankTable = {
    RankMove{v1::SPAWNED, v1::CONNECTED},    // with its token and the current epoch
    RankMove{v1::CONNECTED, v1::COMM_INIT},  // process group ids received
    RankMove{v1::COMM_INIT, v1::LOADING},    // communicators created, memory planned
    RankMove{v1::LOADING, v1::READY},        // weights initialised or loaded
    RankMove{v1::READY, v1::TRAINING},       // it is to run
    RankMove{v1::READY, v1::HELD},           // it is to hold
    RankMove{v1::TRAINING, v1::HELD},        // command to hold
    RankMove{v1::HELD, v1::TRAINING},        // command to resume
    RankMove{v1::READY, v1::EXITING},        // command to stop
    RankMove{v1::TRAINING, v1::EXITING},     // command to stop
    RankMove{v1::HELD, v1::EXITING},         // command to stop
};

constexpr int kNumRankStates = v1::RankState_ARRAYSIZE;
using Reach = std::array<std::array<bool, kNumRankStates>, kNumRankStates>;

// Which states follow which, in one move or several.
constexpr Reach Closure() {
  Reach reach{};
  for (const RankMove& move : kRankTable) reach[move.from][move.to] = true;
  for (size_t via = 0; via < kNumRankStates; ++via) {
    for (size_t from = 0; from < kNumRankStates; ++from) {
      for (size_t to = 0; to < kNumRankStates; ++to)
        reach[from][to] = reach[from][to] || (reach[from][via] && reach[via][to]);
    }
  }
  return reach;
}

constexpr Reach kReach = Closure();

struct AllocationMove {
  v1::AllocationState from;
  v1::AllocationState to;
};

// The moves of docs/design/control-plane.md#allocation-states. DIRTY is reserved: nothing moves an
// allocation there yet.
constexpr std::array kAllocationTable = {
    AllocationMove{v1::RESERVED, v1::ACCEPTED},     // agent accepted
    AllocationMove{v1::RESERVED, v1::RELEASED},     // agent refused, or never received it
    AllocationMove{v1::RESERVED, v1::FREEING},      // P6, cancel, fault on another node
    AllocationMove{v1::RESERVED, v1::UNREACHABLE},  // node lost
    AllocationMove{v1::ACCEPTED, v1::ACTIVE},       // first rank started
    AllocationMove{v1::ACCEPTED, v1::FREEING},      // stop
    AllocationMove{v1::ACCEPTED, v1::RELEASED},     // processes exited by themselves
    AllocationMove{v1::ACCEPTED, v1::UNREACHABLE},  // node lost
    AllocationMove{v1::ACTIVE, v1::FREEING},        // stop
    AllocationMove{v1::ACTIVE, v1::RELEASED},       // processes exited by themselves
    AllocationMove{v1::ACTIVE, v1::UNREACHABLE},    // node lost
    AllocationMove{v1::FREEING, v1::RELEASED},      // processes gone
    AllocationMove{v1::FREEING, v1::UNREACHABLE},   // node lost
    AllocationMove{v1::UNREACHABLE, v1::ACCEPTED},  // node is back and reports it
    AllocationMove{v1::UNREACHABLE, v1::ACTIVE},    // node is back and reports it
    AllocationMove{v1::UNREACHABLE, v1::FREEING},   // node is back, epoch was fenced
    AllocationMove{v1::UNREACHABLE, v1::RELEASED},  // node is back without it, or declared dead
    AllocationMove{v1::FREEING, v1::DIRTY},         // P4 passed, device memory not free
    AllocationMove{v1::ACCEPTED, v1::ORPHANED},     // its job is not known any more
    AllocationMove{v1::ACTIVE, v1::ORPHANED},       // likewise
    AllocationMove{v1::UNREACHABLE, v1::ORPHANED},  // node is back, nobody has closed the epoch
    AllocationMove{v1::ORPHANED, v1::ACTIVE},       // adopted
    AllocationMove{v1::ORPHANED, v1::FREEING},      // its epoch was closed, or an operator says so
    AllocationMove{v1::ORPHANED, v1::RELEASED},     // processes gone
    AllocationMove{v1::DIRTY, v1::RELEASED},        // probe passes, or operator intervenes
};

}  // namespace

bool RankMayMove(v1::RankState from, v1::RankState to) {
  if (!v1::RankState_IsValid(from) || !v1::RankState_IsValid(to)) return false;
  if (to == v1::RANK_STATE_UNSPECIFIED) return false;
  if (from == to || from == v1::RANK_STATE_UNSPECIFIED) return true;
  if (RankHasEnded(from)) return false;
  if (from == v1::FENCED) return to == v1::DONE;
  if (to == v1::UNKNOWN || to == v1::FENCED || RankHasEnded(to)) return true;
  return from == v1::UNKNOWN || kReach[from][to];
}

bool RankIsReady(v1::RankState state) {
  return state == v1::READY || state == v1::TRAINING || state == v1::HELD;
}

bool RankHasEnded(v1::RankState state) { return state == v1::DONE || state == v1::FAULTED; }

bool AllocationMayMove(v1::AllocationState from, v1::AllocationState to) {
  for (const AllocationMove& row : kAllocationTable) {
    if (row.from == from && row.to == to) return true;
  }
  return false;
}

}  // namespace mt::daemon
