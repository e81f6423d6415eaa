// What a manifest tells at a glance: layout, precision, sizes. Pure, but for FolderBytes.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// Of the job's spec in the manifest; 0 and "" where it does not tell.
struct Summary {
  int64_t tensor_parallel = 0, pipeline_parallel = 0, data_parallel = 0;
  std::string precision;  // "bf16"
  int64_t num_tensors = 0;
  int64_t num_slices = 0;
  int64_t parameters = 0;   // of the whole model
  int64_t state_bytes = 0;  // of all tensors
  int64_t consumed_samples = 0;
  int64_t tokens = 0;  // of the consumed samples
};

Summary Summarize(const Manifest& manifest);
// "tp 2 x pp 2 x dp 1"; "" where the job does not tell.
std::string LayoutText(const Summary& summary);
// Elements of a tensor.
int64_t ElementsOf(const TensorEntry& tensor);

// Sum of the sizes of a folder's files.
StatusOr<int64_t> FolderBytes(const std::string& folder);

}  // namespace mt::checkpoint
