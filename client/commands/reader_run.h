// What `mtctl generate` and `eval` have in common: where a job is named, a job of the cluster reads
// its checkpoint and its text comes to this terminal; a folder, or --local, is read by mt-rank here
// (client/commands/rank_program.h). One thread, and another one that holds the job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "client/commands/rank_program.h"
#include "client/commands/reader_spec.h"

namespace mt::client {

struct ReaderVerb {
  ReaderTarget target;
  bool local = false;
  bool wait = false;
  bool detach = false;
  bool device_given = false;
  bool threads_given = false;
  std::string data_root;
};

// Adds the target and the flags above; after those of decode::AddComputeFlags, whose words it
// changes where a job's reader has other defaults. `verb` must live as long as the app.
void AddReaderVerb(CLI::App* command, ReaderVerb* verb);
// Fills in which flags were given; to be called when parsing is complete.
void NoteGiven(const CLI::App& command, ReaderVerb* verb);

struct ReaderWays {
  std::string flag;                    // of mt-rank: "--generate"
  std::vector<std::string> arguments;  // of mt-rank
  std::function<StatusOr<v1::JobSpec>(const ReaderSource&)> make_job;
  bool has_in_job = false;  // the verb takes --in-job
};
// Blocks until all is read. On the cluster: kExitError where no slot is free and --wait was not
// given, nothing was submitted; kExitInterrupted after Ctrl-C, which cancels the job unless it was
// detached; kExitJobFailed where it failed or was cancelled. Else as RunReader.
ExitCode RunReaderVerb(const ReaderVerb& verb, const ReaderWays& ways,
                       const GlobalOptions& options);

}  // namespace mt::client
