// A slice is stored row-major, so that its part of some rows of the tensor is contiguous in the
// file.
#include "worker/checkpoint/inspect/tensor_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/files.h"

namespace mt::checkpoint {
namespace {

// Files that are open at once, far below the usual limit of descriptors.
constexpr size_t kOpenFiles = 64;

// Copies the elements of a row's box from `from`, where they are contiguous, into a row of a tensor
// of `shape`. Dimension 0 is the row's own.
void CopyRow(const SliceEntry& slice, const std::vector<int64_t>& shape, int64_t element_bytes,
             const std::byte* from, std::byte* row) {
  const size_t rank = shape.size();
  const int64_t run = rank < 2 ? 1 : slice.shape[rank - 1];
  std::vector<int64_t> at(slice.offset);
  for (;;) {
    int64_t place = 0;
    for (size_t d = 1; d < rank; ++d) place = place * shape[d] + at[d];
    std::memcpy(row + place * element_bytes, from, static_cast<size_t>(run * element_bytes));
    from += run * element_bytes;
    // The next run: an odometer over the dimensions between the first and the last.
    size_t d = rank < 2 ? 1 : rank - 1;
    for (--d; d > 0; --d) {
      if (++at[d] < slice.offset[d] + slice.shape[d]) break;
      at[d] = slice.offset[d];
    }
    if (d == 0) return;
  }
}

}  // namespace

TensorRows::TensorRows(std::string folder, const TensorEntry& tensor)
    : folder_(std::move(folder)), tensor_(&tensor), element_bytes_(ElementSize(tensor.dtype)) {
  row_bytes_ = element_bytes_;
  if (!tensor.shape.empty()) num_rows_ = tensor.shape[0];
  for (size_t d = 1; d < tensor.shape.size(); ++d) row_bytes_ *= tensor.shape[d];
}

StatusOr<TensorRows> TensorRows::Open(const std::string& folder, const TensorEntry& tensor) {
  TensorRows rows(folder, tensor);
  for (const SliceEntry& slice : tensor.slices) {
    ASSIGN_OR_RETURN(const SafetensorsReader* reader, rows.OpenFile(slice.file));
    const auto entry = reader->entries().find(slice.tensor);
    if (entry == reader->entries().end() || entry->second.shape != slice.shape ||
        entry->second.dtype != tensor.dtype) {
      return base::DataLoss("{} does not hold {} as its manifest says", reader->path(),
                            slice.tensor);
    }
  }
  return rows;
}

StatusOr<const SafetensorsReader*> TensorRows::OpenFile(const std::string& file) {
  auto it = files_.find(file);
  if (it == files_.end()) {
    if (files_.size() >= kOpenFiles) files_.clear();
    ASSIGN_OR_RETURN(SafetensorsReader reader,
                     SafetensorsReader::Open(base::JoinPath(folder_, file)));
    it = files_.emplace(file, std::move(reader)).first;
  }
  return &it->second;
}

Status TensorRows::Read(int64_t first, std::span<std::byte> out) {
  if (out.empty()) return OkStatus();
  const int64_t end = first + std::ssize(out) / row_bytes_;
  for (const SliceEntry& slice : tensor_->slices)
    RETURN_IF_ERROR(ReadSlice(slice, first, end, out));
  return OkStatus();
}

Status TensorRows::ReadSlice(const SliceEntry& slice, int64_t first, int64_t end,
                             std::span<std::byte> out) {
  const bool scalar = tensor_->shape.empty();
  const int64_t offset = scalar ? 0 : slice.offset[0];
  const int64_t begin = std::max(first, offset);
  const int64_t stop = std::min(end, offset + (scalar ? 1 : slice.shape[0]));
  int64_t bytes = element_bytes_;  // of one row of the slice
  for (size_t d = 1; d < slice.shape.size(); ++d) bytes *= slice.shape[d];
  if (begin >= stop || bytes == 0) return OkStatus();
  ASSIGN_OR_RETURN(const SafetensorsReader* reader, OpenFile(slice.file));
  const auto entry = reader->entries().find(slice.tensor);
  if (entry == reader->entries().end() || entry->second.shape != slice.shape)
    return base::DataLoss("{} has changed while it was read", reader->path());
  std::byte* const to = out.data() + (begin - first) * row_bytes_;
  const int64_t from = (begin - offset) * bytes;
  const auto total = static_cast<size_t>((stop - begin) * bytes);
  if (bytes == row_bytes_) return reader->ReadPart(entry->second, from, {to, total});
  part_.resize(total);
  RETURN_IF_ERROR(reader->ReadPart(entry->second, from, part_));
  for (int64_t row = 0; row < stop - begin; ++row) {
    CopyRow(slice, tensor_->shape, element_bytes_, part_.data() + row * bytes,
            to + row * row_bytes_);
  }
  return OkStatus();
}

}  // namespace mt::checkpoint
