// How often a job reads its data, from the sizes of their files alone: no sample index is built, so
// it can be told before the job is submitted. What its ranks count (train::PassesOver) is the same
// but for the tokens that fill no sample.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

// Evaluations of a run of so many steps, but for the one after its last step.
int64_t EvaluationsDuring(const megatrain::v1::JobSpec& job, int64_t steps);

// Of a whole run; of a blend those over the data set that is read most often. 0: mock data, or no
// evaluation during the run.
struct DataPasses {
  double train = 0;
  double valid = 0;
};

// `job` is completed. Opens the files of its data sets below `data_root` and counts their tokens;
// blocks for one pass over each .idx. Errors name the file or the field.
StatusOr<DataPasses> PassesOfJob(const std::string& data_root, const megatrain::v1::JobSpec& job);

}  // namespace mt::train
