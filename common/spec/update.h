// What differs between two jobs, and updates of a living job: only fields that job.proto marks
// `live` may change; all others are refused field by field. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "common/spec/fault.h"
#include "common/spec/validate.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

using megatrain::v1::JobSpec;

// A request for changes, as mtctl and the coordinator's API send it.
struct Update {
  const megatrain::v1::JobSpec& changes;   // set fields replace those of the job; labels are merged
  std::vector<std::string> clear;          // paths of fields that return to their default
  std::vector<std::string> remove_labels;  // unknown names are ignored
};

// A changed field; the path of a label is "labels.NAME". "" stands for unset.
struct FieldChange {
  std::string path;
  std::string before;
  std::string after;
};

// "optimizer.lr 0.001 -> 0.0003"; what is unset is "nothing".
std::string ChangeText(const FieldChange& change);

// The fields, live or not, in which a run's job differs from the one that it goes on from, both
// completed; in the order of their paths. Left out is what a submission has for itself: its name,
// namespace and labels, where it saves, how it begins, and where it ends before its length.
std::vector<FieldChange> DifferencesOfJobs(const JobSpec& before, const JobSpec& after);

// Applies `update` to a completed job and completes it again. With faults, *job is unchanged and
// *changes empty. Setting any field to the value that it already has is not a change.
[[nodiscard]] Faults ApplyUpdate(const ValidateContext& context, const Update& update,
                                 megatrain::v1::JobSpec* job, std::vector<FieldChange>* changes);

}  // namespace mt::spec
