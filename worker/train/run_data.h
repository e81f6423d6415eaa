// The data sets of a run, from its job: training samples, the rotating part of the validation split
// that evaluations during training read, or the part that each of them reads, and the whole split
// for the last one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/spec/course.h"
#include "worker/data/dataset.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

struct RunDataArgs {
  const megatrain::v1::JobSpec* job = nullptr;  // completed
  spec::Course course;
  std::string data_root;   // absolute
  std::string cache_root;  // absolute; empty: no index cache
};

// The validation sets are nullptr where evaluation is off.
struct RunData {
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> valid;  // nullptr also where eval.iters is 0: always whole
  std::shared_ptr<const data::Dataset> whole_valid;  // every token once
  // Records of train and valid, for the manifest.
  std::vector<data::IndexRecord> Records() const;
};

// Opens the data sets; builds the indices that the cache does not have. Blocks. Errors name the
// file or the field; kDataLoss where a file is damaged.
StatusOr<RunData> OpenRunData(const RunDataArgs& args);

}  // namespace mt::train
