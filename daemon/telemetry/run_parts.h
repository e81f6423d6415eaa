// Which steps of which histories are a run's: each placement of it (an attempt) from the step that
// it went on from, until a later one has gone on from an earlier step. The one place that knows
// (daemon/telemetry/README.md).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace megatrain::v1 {
class EpochRun;
}

namespace mt::daemon {

class History;

// A job that has, or may have, a part in a run.
struct RunSource {
  std::string job_uid;
  // False: it is from before runs had ids, and one attempt.
  bool told = true;
  int64_t resumed_from_step = 0;  // of its newest start
};

// Where to look for a run, and what is asked for.
struct RunSources {
  std::string run;                   // its id; empty: not known
  std::string job_uid;               // the run as of this job: without what later jobs have trained
  std::vector<RunSource> jobs = {};  // in the order of submission
  int attempt = 0;                   // that one alone; 0: the run
};

// Steps of one attempt: from_step < step <= to_step.
struct RunPart {
  static constexpr int64_t kOpen = std::numeric_limits<int64_t>::max();
  std::string job_uid;
  int64_t from_step = 0;
  int64_t to_step = kOpen;
  int attempt = 0;  // 0: not known
  // Of one attempt alone: the last of its steps behind to_step, which a later one of the same job
  // has replaced, and its epoch; 0: it has none.
  int64_t replaced_to = 0;
  int64_t epoch = 0;
};

struct RunParts {
  std::vector<RunPart> parts;                 // ascending, none overlaps another
  std::vector<megatrain::v1::EpochRun> told;  // all attempts that are known, oldest first
};
// Reads the disk: what each job's history has, not its steps. A job that has told no run is a part
// by itself where it is the job that is asked for.
RunParts FindRunParts(const History& history, const RunSources& sources);

}  // namespace mt::daemon
