// Slices cover each element once, which ReadWholeManifest has checked.
#include "worker/hf/weight_files.h"

#include <utility>

#include <fmt/ranges.h>

namespace mt::hf {

WeightFiles::WeightFiles(std::string folder, checkpoint::Manifest manifest)
    : folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      files_(folder_, manifest_.block_bytes, {}, {}) {}

StatusOr<const checkpoint::TensorEntry*> WeightFiles::Find(const std::string& parameter,
                                                           const Shape& shape) const {
  const auto it = manifest_.tensors.find("weights/" + parameter);
  if (it == manifest_.tensors.end()) {
    return base::NotFound(
        "checkpoint {} has no {}: it is no checkpoint of the model that its job "
        "says",
        folder_, parameter);
  }
  const checkpoint::TensorEntry& tensor = it->second;
  if (tensor.shape != shape || (tensor.dtype != "F32" && tensor.dtype != "F64")) {
    return base::FailedPrecondition(
        "checkpoint {}: {} is {} [{}], the model of its job has F32 or F64 [{}]", folder_,
        parameter, tensor.dtype, fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  }
  return &tensor;
}

Status WeightFiles::Read(const checkpoint::TensorEntry& tensor, const checkpoint::Box& box,
                         std::byte* out) {
  for (const checkpoint::SliceEntry& slice : tensor.slices)
    RETURN_IF_ERROR(files_.Copy(tensor, slice, box, out));
  return OkStatus();
}

}  // namespace mt::hf
