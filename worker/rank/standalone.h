// mt-rank without daemons, for tests, debugging and profiling: one process, or several on this host
// that communicate over Gloo and find each other through a folder.
#pragma once

#include "worker/rank/options.h"

namespace mt::rank {

// Reads and validates the job. Trains in this process if the job has one rank, otherwise starts a
// process per rank and waits for them. Returns the run's exit code; with several ranks it is that
// of the first one at fault. Prints one message on stderr if it is not 0.
int RunStandalone(const Options& options, int argc, char** argv);
// Runs one of several processes. Writes its error to the rendezvous folder, from which the first
// process prints it.
int RunMember(const Options& options);

}  // namespace mt::rank
