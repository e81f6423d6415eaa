// mt-rank --generate DIR and --eval DIR: text from a checkpoint and its scores, without a job and
// without daemons (worker/decode/generate_command.h, worker/decode/scores/eval_command.h).
#pragma once

namespace mt::rank {

// True where the command line asks for one of them.
bool AsksToRead(int argc, char** argv);

// Parses the command line, generates or scores, and returns the exit code. Signals must be blocked
// (BlockStopSignals): the first ends what is going on, or the program before anything is.
int RunReader(int argc, char** argv);

}  // namespace mt::rank
