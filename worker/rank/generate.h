// mt-rank --generate DIR: text from a checkpoint, without a job and without daemons
// (worker/decode/generate_command.h).
#pragma once

namespace mt::rank {

// True where the command line asks for it.
bool AsksToGenerate(int argc, char** argv);

// Parses the command line, generates, and returns the exit code. Signals must be blocked
// (BlockStopSignals): the first ends what is generated, or the program before anything is.
int RunGenerate(int argc, char** argv);

}  // namespace mt::rank
