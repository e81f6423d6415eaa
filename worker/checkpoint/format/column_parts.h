// How matrices that tensor ranks cut by columns are stored: in parts of equal columns, each whole
// and contiguous, so that a rank of another layout reads and checks the parts that hold its own
// columns and no others. Stored as one, such a matrix has a piece of every row in every block, and
// each rank would read all of it. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mt::checkpoint {

// Of a whole matrix: as many tensor ranks find their columns in parts of their own.
inline constexpr int64_t kColumnParts = 8;
// What is less is not worth an entry of its own in a manifest.
inline constexpr int64_t kLeastPartBytes = int64_t{256} << 10;

// In how many parts of equal columns the box of a `matrix` is stored. Parts begin at multiples of
// 1/kColumnParts of the whole matrix's columns, whatever the box. 1, as it is: where the columns do
// not divide, the box is not made of whole parts, or its parts would be too small.
int64_t NumColumnParts(const std::vector<int64_t>& matrix, const std::vector<int64_t>& offset,
                       const std::vector<int64_t>& shape, int64_t element_bytes);

// Cuts the bytes of a row-major matrix, which come in pieces of any length, into parts of equal
// columns.
class ColumnCutter {
 public:
  // `row_bytes` is divisible by `num_parts`.
  ColumnCutter(int64_t row_bytes, int64_t num_parts);

  // What belongs to a part of the next bytes of the matrix, packed; valid until the next call.
  std::string_view Cut(std::string_view bytes, int64_t part);
  // These bytes are dealt with.
  void Advance(std::string_view bytes) { at_ += static_cast<int64_t>(bytes.size()); }

 private:
  const int64_t row_bytes_, part_bytes_;  // of a row
  int64_t at_ = 0;                        // in the matrix, of the next byte
  std::string buffer_;
};

}  // namespace mt::checkpoint
