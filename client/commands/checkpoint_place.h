// What a user calls a checkpoint: a path on this machine, or a job's by the job's name.
#pragma once

#include <string>

#include "client/session/session.h"
#include "common/base/status.h"
#include "worker/checkpoint/inspect/place.h"

namespace mt::client {

// `text`: a path; or JOB, its directory of checkpoints; or JOB:STEP, JOB:TAG, one of them. A path
// that exists goes before a job. The coordinator is asked for jobs only, and may be away. Errors:
// checkpoint::FindPlace's; kNotFound: neither a path nor a job that is known, the job has no such
// checkpoint, or its folder is not on this machine (node and path are named); the coordinator's.
StatusOr<checkpoint::Place> ResolvePlace(const std::string& text, const GlobalOptions& options);

// A directory of checkpoints: its path, or JOB. kInvalidArgument: one checkpoint is named.
struct NamedDirectory {
  std::string directory;
  std::string ended_job_uid;  // of a job that was named and trains no more; empty: none
};
StatusOr<NamedDirectory> ResolveDirectory(const std::string& text, const GlobalOptions& options);

// One checkpoint; JOB alone means its newest.
struct NamedCheckpoint {
  checkpoint::CheckpointPlace place;
  std::string ended_job_uid;  // of a job that was named and trains no more; empty: none
};
StatusOr<NamedCheckpoint> ResolveCheckpoint(const std::string& text, const GlobalOptions& options);

}  // namespace mt::client
