// Which run a start is of: it goes on with the one whose checkpoint it loads, or begins another,
// with a new id. Blocks on the file system and writes nothing; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::checkpoint {

struct RunQuery {
  std::string directory;  // to which the start saves, held by its fence; empty: none
  RunPlace place;         // of the directory
  int64_t epoch = 0;      // the start's directory epoch
  RunBeginning beginning;
  std::string job_uid;  // empty: standalone
  std::string job_name;
  std::string fence_run;  // Fence::run
  // The checkpoint that was loaded; its run as its manifest or its own directory's list tells.
  std::optional<RunSource> loaded;
  // Whether that is one of `directory`.
  bool loaded_here = false;
};

struct RunChoice {
  RunRecord run;
  bool begins = false;  // with this start
  std::string loaded;   // id of the run that saved what was loaded; empty: none, or not known
  // Path of another directory, whose list was copied beside checkpoints that it does not know;
  // empty: it was not.
  std::string list_of;
  RunList all;  // what run.json is to hold: the run is among them, with the start's epoch
};

// A run begins where the job names a beginning, where nothing was loaded, and where the checkpoint
// that was loaded is a copy of another directory's: that run's id is the new one's parent. A start
// that finds a copy again, before its run has saved, goes on with the run that began from it.
//
// Checkpoints from before runs had ids get runs, so that all of a directory have one: one without a
// parent, or of a job that names a beginning, begins a run; any other is of its parent's run or,
// where that is not known any more, of the run before. Of more than kRunsKept runs the oldest that
// have no checkpoint are left out. Errors are those of ReadRuns and ListCheckpoints.
StatusOr<RunChoice> ChooseRun(const RunQuery& query);

inline constexpr size_t kRunsKept = 1024;

}  // namespace mt::checkpoint
