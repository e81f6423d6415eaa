// A tensor of a checkpoint as rows of its first dimension, assembled from whatever boxes it was
// stored in. One thread; blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {

class TensorRows {
 public:
  // `tensor` is borrowed. Sees that the files hold each slice as the manifest says: kDataLoss where
  // one does not, so that no memory is asked for that the files could not fill.
  static StatusOr<TensorRows> Open(const std::string& folder, const TensorEntry& tensor);

  int64_t num_rows() const { return num_rows_; }
  int64_t row_bytes() const { return row_bytes_; }
  // Reads the rows from `first` on; `out` has a whole number of them.
  Status Read(int64_t first, std::span<std::byte> out);

 private:
  TensorRows(std::string folder, const TensorEntry& tensor);
  StatusOr<const SafetensorsReader*> OpenFile(const std::string& file);
  Status ReadSlice(const SliceEntry& slice, int64_t first, int64_t end, std::span<std::byte> out);

  std::string folder_;
  const TensorEntry* tensor_;
  int64_t element_bytes_ = 0;
  int64_t num_rows_ = 1;  // a tensor without dimensions is one row
  int64_t row_bytes_ = 0;
  std::map<std::string, SafetensorsReader> files_;
  std::vector<std::byte> part_;  // rows of one slice
};

}  // namespace mt::checkpoint
