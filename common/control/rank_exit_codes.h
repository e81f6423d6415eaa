// Exit codes of a rank: what each one means, which cause it stands for where the rank has told
// none, and what is to follow. One table for all who look at them: the rank, which returns them,
// its agent, the coordinator and mtctl. Values are persistent (logs, exit.json, operators'
// scripts). docs/design/control-plane.md#exit-codes shows the table; a test holds it to this one.
#pragma once

#include <array>

namespace mt::control {

enum RankExitCode : int {
  kExitDone = 0,
  kExitConfig = 64,       // the job cannot run as written
  kExitPreflight = 65,    // its node does not pass a check
  kExitInternal = 70,     // a fault of the engine or its collectives
  kExitDevice = 71,       // a device error, or a device that cannot be used
  kExitHardware = 72,     // the device is broken
  kExitCheckpoint = 73,   // a checkpoint could not be loaded, or data could not be read
  kExitNonfinite = 74,    // loss or gradient norm not finite, and the job says stop
  kExitTransient = 75,    // a peer or its connection was lost, or the rank was told to leave
  kExitSaveFailed = 76,   // a save failed under `checkpoint.strict`
  kExitNotAgain = 93,     // the job is not to be tried again
  kExitNotStarted = 127,  // the rank's program could not be started
};

// Numbers of megatrain.v1.Cause.
enum class ExitCause : int {
  kNone = 0,
  kUserError = 1,
  kNumeric = 3,
  kHardware = 5,
  kNetwork = 6,
  kStorage = 7,
  kPreflight = 8,
  kInternal = 11,
};

// Which budget of resilience.max_restarts a new epoch is counted against.
enum class RestartBudget : int { kNever, kUser, kHang, kStorage, kInfrastructure };

struct RankExitMeaning {
  int code;
  ExitCause cause;
  RestartBudget budget;
  bool elsewhere;     // the next placement takes other nodes, where others will do
  bool slot_is_done;  // the agent offers the slot to nobody any more
  const char* text;
};

inline constexpr std::array kRankExits = std::to_array<RankExitMeaning>({
    {kExitConfig, ExitCause::kUserError, RestartBudget::kNever, false, false,
     "the job cannot run as written"},
    {kExitPreflight, ExitCause::kPreflight, RestartBudget::kInfrastructure, true, false,
     "its node does not pass a check"},
    {kExitInternal, ExitCause::kInternal, RestartBudget::kInfrastructure, false, false,
     "engine or collectives"},
    {kExitDevice, ExitCause::kHardware, RestartBudget::kInfrastructure, false, false,
     "device error"},
    {kExitHardware, ExitCause::kHardware, RestartBudget::kInfrastructure, false, true,
     "broken hardware"},
    {kExitCheckpoint, ExitCause::kStorage, RestartBudget::kStorage, false, false,
     "checkpoint or data"},
    {kExitNonfinite, ExitCause::kNumeric, RestartBudget::kNever, false, false, "not finite"},
    {kExitTransient, ExitCause::kNetwork, RestartBudget::kInfrastructure, false, false,
     "lost its peers"},
    {kExitSaveFailed, ExitCause::kStorage, RestartBudget::kStorage, false, false,
     "a save failed under checkpoint.strict"},
    {kExitNotAgain, ExitCause::kUserError, RestartBudget::kNever, false, false,
     "not to be tried again"},
    {kExitNotStarted, ExitCause::kInternal, RestartBudget::kInfrastructure, false, false,
     "not started"},
});

// A code that is not listed is a fault of the machinery, as is a signal and an end that nobody saw.
constexpr RankExitMeaning MeaningOfExit(int code) {
  for (const RankExitMeaning& one : kRankExits) {
    if (one.code == code) return one;
  }
  return {code, ExitCause::kInternal, RestartBudget::kInfrastructure, false, false, "unexpected"};
}

}  // namespace mt::control
