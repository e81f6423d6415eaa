// One part at a time, so that its bytes are written and digested together.
#include "worker/checkpoint/format/column_parts.h"

#include <algorithm>

#include "common/base/math.h"

namespace mt::checkpoint {

int64_t NumColumnParts(const std::vector<int64_t>& matrix, const std::vector<int64_t>& offset,
                       const std::vector<int64_t>& shape, int64_t element_bytes) {
  if (matrix.size() != 2 || matrix[1] % kColumnParts != 0) return 1;
  const int64_t columns = matrix[1] / kColumnParts;
  if (columns == 0 || offset[1] % columns != 0 || shape[1] % columns != 0) return 1;
  if (shape[0] * columns * element_bytes < kLeastPartBytes) return 1;
  return std::max<int64_t>(shape[1] / columns, 1);
}

ColumnCutter::ColumnCutter(int64_t row_bytes, int64_t num_parts)
    : row_bytes_(row_bytes), part_bytes_(base::DivExact(row_bytes, num_parts)) {}

std::string_view ColumnCutter::Cut(std::string_view bytes, int64_t part) {
  buffer_.clear();
  const int64_t end = at_ + static_cast<int64_t>(bytes.size());
  // Of the row in which the bytes begin, and of each further one.
  for (int64_t row = at_ / row_bytes_ * row_bytes_; row < end; row += row_bytes_) {
    const int64_t from = std::max(at_, row + part * part_bytes_);
    const int64_t to = std::min(end, row + (part + 1) * part_bytes_);
    if (from < to)
      buffer_ += bytes.substr(static_cast<size_t>(from - at_), static_cast<size_t>(to - from));
  }
  return buffer_;
}

}  // namespace mt::checkpoint
