// What may change of a job while it lives: the fields that job.proto marks `live`. Everything else
// is refused field by field. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "common/spec/fault.h"
#include "common/spec/validate.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

struct Update {
  const megatrain::v1::JobSpec& changes;   // fields that are set are changed; labels are merged
  std::vector<std::string> clear;          // paths that go back to their default
  std::vector<std::string> remove_labels;  // unknown ones are passed over
};

// One changed field; a label's path is "labels.NAME". "" stands for unset.
struct FieldChange {
  std::string path;
  std::string before;
  std::string after;
};

// Applies it to a completed job and completes that again. With faults, *job is as it was and
// *changes empty. A field that is set to the value it has is no change, whichever it is.
[[nodiscard]] Faults ApplyUpdate(const ValidateContext& context, const Update& update,
                                 megatrain::v1::JobSpec* job, std::vector<FieldChange>* changes);

}  // namespace mt::spec
