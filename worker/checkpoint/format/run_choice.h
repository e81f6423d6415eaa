// Which run a start is of. The run is chosen first, then the checkpoint: a start goes on with a run
// of its directory, at that run's own newest checkpoint, or begins another, with a new id. Blocks
// on the file system and writes nothing; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  // The newest checkpoint when the fence was raised; nullopt: there was none, or it is not known.
  std::optional<CheckpointId> newest = {};
  // Of a request to begin a run on purpose; empty: there was none. It travels with every start of
  // the job, and the first one begins the run.
  std::string restart = {};
  // What the start is bound to (resume_base.h): the run, where it is known, and the checkpoint of
  // `directory` that was chosen by the base, with the run that its manifest names.
  std::string bound_run = {};
  std::optional<RunSource> bound = {};
};

struct RunChoice {
  RunRecord run;
  bool begins = false;  // with this start
  // Complete checkpoints of `directory` to go on from, newest first: the run's own or, where it has
  // none and began from one of this directory, what it began from and older ones of that run. Of a
  // run that begins as a copy, its parent's. Empty: it begins, or begins again, as its beginning
  // says.
  std::vector<CheckpointId> checkpoints;
  std::string of;  // id of the run whose checkpoints those are; empty: there are none
  // Path of another directory, whose list was copied beside checkpoints that it does not know;
  // empty: it was not.
  std::string list_of;
  RunList all;  // what run.json is to hold: the run is among them, with the start's epoch
};

// The run is, in this order: that of the restart token, or else one that begins with it; what the
// start is bound to; where the job names a beginning, the newest run of the directory that began
// with the same text; where it names none, the newest run. The newest run is the one of the highest
// directory epoch. Where there is none, one begins. Where it is a run of another directory, of
// which this one is a copy, one begins with it as its parent and goes on from its checkpoints.
//
// Checkpoints from before runs had ids get runs, so that all of a directory have one: one without a
// parent, or of a job that names a beginning, begins a run; any other is of its parent's run or,
// where that is not known any more, of the run before. Of more than kRunsKept runs the oldest that
// have no checkpoint are left out. Errors are those of ReadRuns and ListCheckpoints; kDataLoss
// where the newest checkpoint is not listed any more.
StatusOr<RunChoice> ChooseRun(const RunQuery& query);

// The run that began with this restart token; nullptr: none did.
const RunRecord* FindRestarted(const RunList& list, std::string_view restart);

// Puts into the choice what its start has loaded, `here`: from its own directory; nullopt: nothing.
// A run that begins, or begins again, is of that source. Returns the id of the run that saved it;
// empty: none, or not known.
std::string SetSource(const std::optional<RunSource>& loaded, bool here, RunChoice* choice);

inline constexpr size_t kRunsKept = 1024;

}  // namespace mt::checkpoint
