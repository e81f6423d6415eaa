// Reads and writes safetensors files (https://github.com/huggingface/safetensors): an 8-byte
// little-endian header length, a JSON header, then the tensors' bytes. Common tools of the field
// open them. Errors name the file. Blocking; an object is used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/runs.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/block_digests.h"

namespace mt::checkpoint {

// A tensor to be written. `data` must stay valid until the write is done; it points to host memory
// unless a PieceReader reads it.
struct TensorToWrite {
  std::string name;
  std::string dtype;  // "F32", "F64", "BF16", "F16", "I32", "I64", "U8"
  std::vector<int64_t> shape;
  const void* data = nullptr;
  base::Runs places;  // of the elements from data on, row-major; the file has no gaps
  // Not empty: instead of one tensor it is stored as tensors of these names, one behind the other,
  // each all rows of an equal share of the columns, from left to right. Then it is a matrix whose
  // columns divide.
  std::vector<std::string> parts{};
};

// Bytes of one element of a safetensors type; 0 for an unknown type.
int64_t ElementSize(std::string_view dtype);
// Bytes of a tensor: the shape's elements times the element size. Not checked for overflow.
int64_t TensorBytes(std::string_view dtype, std::span<const int64_t> shape);

// Interface that makes device memory readable. Pieces have at most kLargestPieceBytes; each is
// started once, in the order in which they are read, and the next one is started before the current
// one is read.
class PieceReader {
 public:
  virtual ~PieceReader() = default;
  // Starts the transfer of a piece to the host.
  virtual void Start(const void* data, int64_t bytes) = 0;
  // Blocks until the oldest unread piece has arrived and returns its bytes, valid until the next
  // Start.
  virtual const void* Read() = 0;
};
inline constexpr int64_t kLargestPieceBytes = int64_t{8} << 20;

// Called after each piece has been written, with its number of bytes: progress for watchdogs. May
// be empty.
using ProgressFn = std::function<void(int64_t bytes)>;

// Writes and fsyncs a new file. Tensors are stored in the given order, the data area beginning at a
// multiple of 256 bytes. Returns the digests of the blocks of each tensor of the file, in order.
// After an error a partial file may exist. `reader`: reads the data of all tensors, on this thread;
// nullptr: they are in host memory, and `threads` write side by side, each a tensor at a time, and
// call `progress`. kAlreadyExists if the file exists.
StatusOr<std::vector<BlockDigests>> WriteSafetensors(const std::string& path,
                                                     std::span<const TensorToWrite> tensors,
                                                     const ProgressFn& progress,
                                                     PieceReader* reader = nullptr, int threads = 1,
                                                     int64_t block_bytes = kBlockBytes);

// An open file whose header was validated: every tensor lies inside the file and has as many bytes
// as its shape requires.
class SafetensorsReader {
 public:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    int64_t offset = 0;  // of the first byte, in the file
    int64_t bytes = 0;
  };

  // Opens a file and validates its header; kDataLoss if it is damaged.
  static StatusOr<SafetensorsReader> Open(const std::string& path,
                                          const base::FileOpener& open = {});
  // The same of a file that others wrote, and as strict as the safetensors library: no name twice,
  // tensors that fill the file without a hole or an overlap, texts alone in __metadata__.
  static StatusOr<SafetensorsReader> OpenForeign(const std::string& path,
                                                 const base::FileOpener& open = {});
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Reads a whole tensor into `out`, whose size must be entry.bytes (CHECK). Does not verify a
  // digest.
  Status Read(const Entry& entry, std::span<std::byte> out) const;
  // Reads the bytes of a tensor from `offset` on, which must be some of its own (CHECK).
  Status ReadPart(const Entry& entry, int64_t offset, std::span<std::byte> out) const;
  const std::string& path() const { return path_; }

 private:
  static StatusOr<SafetensorsReader> OpenAs(const std::string& path, const base::FileOpener& open,
                                            bool foreign);

  std::string path_;
  base::Fd fd_;
  std::map<std::string, Entry> entries_;
};

}  // namespace mt::checkpoint
