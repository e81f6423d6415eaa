// Everything in a directory of checkpoints that has the name of one: what a reader would take, and
// what it would not and why. Blocking; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/checkpoint/inspect/summary.h"

namespace mt::checkpoint {

struct ListedFolder {
  std::string name;
  CheckpointId id;
  std::string fault;    // why no run resumes from it; empty: a complete checkpoint
  bool newest = false;  // of the complete ones
  int64_t bytes = 0;    // of its files
  std::optional<Pin> pin;
  // An error where it has one that cannot be read; it is kept all the same.
  StatusOr<Label> label = absl::NotFoundError("no label");  // ReadLabel
  std::optional<Evaluation> evaluation;
  // Id of the run that saved it; where no manifest tells, the run of its epoch; empty: not known.
  std::string run;
  // Of the manifest, where that could be read.
  std::string job_name, job_uid, created;
  int64_t world_size = 0;
  Summary summary;
};

struct Listing {
  std::optional<Fence> fence;
  StatusOr<RunList> runs = RunList();  // ReadRuns; an error keeps nobody from the checkpoints
  std::vector<ListedFolder> folders;   // oldest first: by epoch, then step, unfinished ones last
};

// Reads every manifest. A folder that is being removed meanwhile is left out, or has a fault.
// Errors: the directory, or its fence, cannot be read.
StatusOr<Listing> ListDirectory(const std::string& directory);
// The complete checkpoints whose manifests can be read, oldest first.
StatusOr<std::vector<CheckpointId>> ReadableCheckpoints(const std::string& directory);

}  // namespace mt::checkpoint
