// What a user calls a checkpoint: a path on this machine, or a job's by the job's name.
#pragma once

#include <optional>
#include <string>

#include "client/session/session.h"
#include "common/base/status.h"
#include "worker/checkpoint/inspect/place.h"

namespace mt::client {

// "JOB:WHAT", where WHAT is a step, a checkpoint's folder or a tag; empty without a colon.
struct JobText {
  std::string job;
  std::string what;
};
// The job that a text names; nullopt: it is a path (it has a slash, begins with a dot, or is there
// on this machine).
std::optional<JobText> JobNamedBy(const std::string& text);

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
