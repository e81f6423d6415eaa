// Numbers come from files that may be damaged, so sums and products guard against overflow.
#include "worker/checkpoint/format/tensor_entry.h"

#include "worker/checkpoint/format/coverage.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {
namespace {

// So that sizes can be added without a thought of overflow.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 50;

Status CheckSlice(const std::string& key, const TensorEntry& tensor, const SliceEntry& slice,
                  int64_t block_bytes) {
  const auto bad = [&](std::string_view why) {
    return base::DataLoss("tensor {}, slice in {}: {}", key, slice.file, why);
  };
  if (slice.shape.size() != tensor.shape.size() || slice.offset.size() != tensor.shape.size()) {
    return bad("another number of dimensions than the tensor");
  }
  for (size_t d = 0; d < slice.shape.size(); ++d) {
    // No sums here: the numbers are untrusted and could overflow.
    if (slice.offset[d] < 0 || slice.shape[d] < 0 || slice.offset[d] > tensor.shape[d] ||
        slice.shape[d] > tensor.shape[d] - slice.offset[d]) {
      return bad("reaches outside the tensor");
    }
  }
  if (!IsPlainName(slice.file)) return bad("the file's name is not a plain name");
  const int64_t blocks = NumBlocks(TensorBytes(tensor.dtype, slice.shape), block_bytes);
  if (std::ssize(slice.digests) != blocks)
    return bad(fmt::format("{} digests for {} blocks", slice.digests.size(), blocks));
  return OkStatus();
}

}  // namespace

int64_t CountElements(const std::vector<int64_t>& shape) { return TensorBytes("U8", shape); }

Status CheckTensor(const std::string& key, const TensorEntry& tensor, int64_t block_bytes) {
  int64_t elements = 1;
  for (const int64_t d : tensor.shape) {
    if (d < 0 || __builtin_mul_overflow(elements, d, &elements)) {
      return base::DataLoss("tensor {} has an impossible shape", key);
    }
  }
  const int64_t element = ElementSize(tensor.dtype);
  if (element == 0) return base::DataLoss("tensor {} has the unknown type {}", key, tensor.dtype);
  if (elements > kMaxTensorBytes / element)
    return base::DataLoss("tensor {} has an impossible shape", key);
  for (const SliceEntry& slice : tensor.slices)
    RETURN_IF_ERROR(CheckSlice(key, tensor, slice, block_bytes));
  return OkStatus();
}

Status CheckWhole(const std::string& key, const TensorEntry& tensor) {
  BoxList boxes(tensor.shape.size());
  for (const SliceEntry& slice : tensor.slices) boxes.Add(slice.offset, slice.shape);
  const Status covered = CheckCoveredOnce(boxes, tensor.shape);
  return covered.ok() ? covered : base::Annotate(covered, "tensor " + key);
}

bool IsPlainName(std::string_view file) {
  return !file.empty() && file.find('/') == std::string_view::npos && file != ".." && file != ".";
}

}  // namespace mt::checkpoint
