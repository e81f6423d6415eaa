// Reads parts of stored slices block by block: the blocks in which wanted bytes lie, no others,
// each checked against its digest before it is used. An object keeps the files that it has opened,
// and is used by one thread. Blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/checkpoint/box_runs.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/checkpoint/format/tensor_entry.h"

namespace mt::checkpoint {

class SliceFiles {
 public:
  // `read` is told the bytes of each block that was read and found whole; may be empty.
  SliceFiles(std::string folder, int64_t block_bytes, base::FileOpener open,
             std::function<void(int64_t bytes)> read);

  // Copies the elements that `stored`, a slice of `tensor`, has in common with `wanted` to where
  // they lie in that box, row-major from `out` on. kDataLoss names the file and the slice that is
  // missing, another one or damaged; else I/O errors. What was copied before an error stays.
  Status Copy(const TensorEntry& tensor, const SliceEntry& stored, const Box& wanted,
              std::byte* out);

 private:
  struct Block;
  StatusOr<const SafetensorsReader*> Open(const std::string& file);
  // Reads a block to `to` and checks it.
  Status ReadBlock(const SafetensorsReader& reader, const SliceEntry& stored, const Block& block,
                   std::byte* to) const;

  const std::string folder_;
  const int64_t block_bytes_;
  const base::FileOpener open_;
  const std::function<void(int64_t bytes)> read_;
  std::map<std::string, SafetensorsReader> files_;
  std::vector<std::byte> buffer_;  // a block that is not read in place
};

}  // namespace mt::checkpoint
