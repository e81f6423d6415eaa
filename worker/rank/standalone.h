// mt-rank without daemons: for tests, debugging, profiling. One process, or several on this host
// over Gloo, which find each other through a folder.
#pragma once

#include "worker/rank/options.h"

namespace mt::rank {

// Reads and checks the job; trains here where it has one rank, else starts a member per rank and
// waits for them. The exit code of the run: with several ranks that of the first one at fault.
// One clear message on stderr where it is not 0.
int RunStandalone(const Options& options, int argc, char** argv);
// One of several: errors go into the rendezvous folder, for the first process to print.
int RunMember(const Options& options);

}  // namespace mt::rank
