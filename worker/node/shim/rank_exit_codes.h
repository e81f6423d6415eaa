// Exit codes of a rank, by which it reports the kind of failure to its parent. Shared by the rank,
// which returns them, and the agent, which interprets them. Values are persistent (logs, exit.json,
// operators' scripts).
#pragma once

namespace mt::node {

enum RankExitCode : int {
  kExitDone = 0,
  kExitConfig = 64,      // the job cannot run as written; never retried
  kExitInternal = 70,    // a fault of the engine
  kExitDevice = 71,      // a device error, or a device that cannot be used
  kExitCheckpoint = 73,  // a checkpoint is damaged, or a save failed under `strict`
  kExitNonfinite = 74,   // loss or gradient norm not finite, and the job says stop
  kExitTransient = 75,   // a peer or its connection was lost, or the rank was told to leave
};

}  // namespace mt::node
