// Where the data sets of a job lie on this machine.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/spec/derived.h"
#include "worker/data/data_source.h"
#include "worker/data/split.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

// The data sets of a split with absolute prefixes; empty where the job gives none. Reads the file
// that lists them where the job names one. Errors name the field's path, which must lie below the
// data root, or the file. Of several data sets those without a document are left out, as a rank of
// datatrove that had none leaves; all such stay.
StatusOr<data::DataPath> DataPathOf(const std::string& data_root, const megatrain::v1::JobSpec& job,
                                    spec::Split split);

// Warns of the data sets that DataPathOf leaves out, each once. Errors as there.
Status SayEmptyPairs(const std::string& data_root, const megatrain::v1::JobSpec& job);

// What data.split has shares of.
data::SplitBy SplitByOf(const megatrain::v1::JobSpec& job);

}  // namespace mt::train
