// mt-rank --generate DIR and --eval DIR: text from a checkpoint and its scores, without a job and
// without daemons (worker/decode/generate_command.h, worker/decode/scores/eval_command.h); and the
// same as a job's rank under an agent.
#pragma once

#include <functional>
#include <string>

#include "common/base/status.h"
#include "worker/train/trainer.h"

namespace mt::rank {

// Asked whether what goes on is to end.
using Interrupted = std::function<bool()>;

// Runs `read`, which a signal interrupts; before it asks for the first time, and where there is a
// second one, the signal ends the program. Device errors become a status.
Status ReadUntilSignal(const std::function<Status(const Interrupted&)>& read);

// A job of kind generate or eval on its rank, under an agent. Pointers are not owned and outlive
// the run.
struct ReaderRankArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed and resolved
  std::string data_root;
  std::string checkpoint_root;
  std::string checkpoint_root_id;  // in its marker; empty: it has none
  std::string gpu;                 // UUID of the assigned GPU; empty: a CPU slot
  std::string output_file;         // for what it writes; empty: there is no folder for it
  train::TrainObserver* observer = nullptr;
  train::CommandSource* commands = nullptr;
};
// Blocks until it has ended, by itself or by a command that stops it; other commands are refused.
// Its states are those of a rank that trains. No exception is thrown.
train::TrainResult RunReaderRank(const ReaderRankArgs& args);

// True where the command line asks for one of them.
bool AsksToRead(int argc, char** argv);

// Parses the command line, generates or scores, and returns the exit code. Signals must be blocked
// (BlockStopSignals): the first ends what is going on, or the program before anything is.
int RunReader(int argc, char** argv);

}  // namespace mt::rank
