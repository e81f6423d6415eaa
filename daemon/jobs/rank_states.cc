#include "daemon/jobs/rank_states.h"

#include <array>

#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

// In the order of a rank's life.
constexpr std::array kLife = {v1::SPAWNED, v1::CONNECTED, v1::COMM_INIT, v1::LOADING,
                              v1::READY,   v1::TRAINING,  v1::EXITING};

constexpr int LifeIndex(v1::RankState state) {
  for (size_t i = 0; i < kLife.size(); ++i) {
    if (kLife[i] == state) return static_cast<int>(i);
  }
  return -1;
}

struct AllocationMove {
  v1::AllocationState from;
  v1::AllocationState to;
};

constexpr std::array kAllocationTable = {
    AllocationMove{v1::RESERVED, v1::ACCEPTED},     // agent accepted
    AllocationMove{v1::RESERVED, v1::RELEASED},     // agent refused, or never got it
    AllocationMove{v1::RESERVED, v1::FREEING},      // P6, cancel, fault elsewhere
    AllocationMove{v1::RESERVED, v1::UNREACHABLE},  // node lost
    AllocationMove{v1::ACCEPTED, v1::ACTIVE},       // first rank started
    AllocationMove{v1::ACCEPTED, v1::FREEING},      // stop
    AllocationMove{v1::ACCEPTED, v1::RELEASED},     // processes gone by themselves
    AllocationMove{v1::ACCEPTED, v1::UNREACHABLE},  // node lost
    AllocationMove{v1::ACTIVE, v1::FREEING},        // stop
    AllocationMove{v1::ACTIVE, v1::RELEASED},       // processes gone by themselves
    AllocationMove{v1::ACTIVE, v1::UNREACHABLE},    // node lost
    AllocationMove{v1::FREEING, v1::RELEASED},      // processes gone
    AllocationMove{v1::FREEING, v1::UNREACHABLE},   // node lost
    AllocationMove{v1::UNREACHABLE, v1::FREEING},   // node back, epoch closed
    AllocationMove{v1::UNREACHABLE, v1::RELEASED},  // node back without it
};

}  // namespace

bool RankMayMove(v1::RankState from, v1::RankState to) {
  if (to == v1::RANK_STATE_UNSPECIFIED) return false;
  if (from == to || from == v1::RANK_STATE_UNSPECIFIED) return true;
  if (RankHasEnded(from)) return false;
  if (to == v1::UNKNOWN || RankHasEnded(to)) return true;
  if (from == v1::UNKNOWN) return LifeIndex(to) >= 0;
  return LifeIndex(to) > LifeIndex(from);
}

bool RankIsReady(v1::RankState state) { return state == v1::READY || state == v1::TRAINING; }

bool RankHasEnded(v1::RankState state) { return state == v1::DONE || state == v1::FAULTED; }

bool AllocationMayMove(v1::AllocationState from, v1::AllocationState to) {
  for (const AllocationMove& row : kAllocationTable) {
    if (row.from == from && row.to == to) return true;
  }
  return false;
}

}  // namespace mt::daemon
