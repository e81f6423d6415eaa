// The weights of one of our checkpoints, read in boxes, each block checked against its digest.
// Blocking; used by one thread.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/box_runs.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/stored_slice.h"
#include "worker/hf/tensors.h"

namespace mt::hf {

class WeightFiles {
 public:
  // `manifest` with the slices of all ranks (checkpoint::ReadWholeManifest).
  WeightFiles(std::string folder, checkpoint::Manifest manifest);
  WeightFiles(const WeightFiles&) = delete;
  WeightFiles& operator=(const WeightFiles&) = delete;

  // A parameter. kNotFound: the checkpoint has none of this name; kFailedPrecondition: its shape or
  // type is another one. Valid as long as the object.
  StatusOr<const checkpoint::TensorEntry*> Find(const std::string& parameter,
                                                const Shape& shape) const;
  // Reads a box of it, row-major, of the stored type. kDataLoss: damaged, or I/O errors.
  Status Read(const checkpoint::TensorEntry& tensor, const checkpoint::Box& box, std::byte* out);

 private:
  const std::string folder_;
  const checkpoint::Manifest manifest_;
  checkpoint::SliceFiles files_;
};

}  // namespace mt::hf
