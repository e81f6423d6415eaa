// Exit codes of a rank: what its process says to whoever collects it. One list for the rank, which
// uses them, and the agent, which reads them. Values are persistent (logs, exit.json, operators'
// scripts).
#pragma once

namespace mt::shim {

enum RankExitCode : int {
  kExitDone = 0,
  kExitConfig = 64,      // the job cannot run as it is written; never retried
  kExitInternal = 70,    // a fault of the engine or its collectives
  kExitDevice = 71,      // the device is in an error that ends the process
  kExitCheckpoint = 73,  // a checkpoint could not be loaded, or a save failed under `strict`
  kExitNonfinite = 74,   // loss or gradient norm was not finite and the job says stop
  kExitTransient = 75,   // a peer or its word was lost, or the rank was asked to leave
};

}  // namespace mt::shim
