// Reading and writing of safetensors files: an 8-byte little-endian header length, a JSON header,
// then the tensors' bytes. The files are plain enough that any tool of the field opens them. Errors
// name the file. Blocking; one thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/runs.h"
#include "common/base/status.h"

namespace mt::checkpoint {

// A tensor to be written. `data` must stay valid until the write is done; it is memory of the host
// unless a PieceReader reads it.
struct TensorToWrite {
  std::string name;
  std::string dtype;  // "F32", "F64", "BF16", "F16", "I32", "I64", "U8"
  std::vector<int64_t> shape;
  const void* data = nullptr;
  base::Runs places;  // of the elements, row-major, from data on; the file has them without gaps
};

// Bytes of one element of a safetensors type name, 0 where it is unknown.
int64_t ElementSize(std::string_view dtype);
// Elements of a shape times the element's size.
int64_t TensorBytes(std::string_view dtype, std::span<const int64_t> shape);

// Makes memory readable that is not the host's. Pieces are at most kLargestPieceBytes; each is
// started once, in the order in which they are read, the next one before the one before it is read.
class PieceReader {
 public:
  virtual ~PieceReader() = default;
  virtual void Start(const void* data, int64_t bytes) = 0;
  // The bytes of the oldest piece that was not read yet, valid until the next Start.
  virtual const void* Read() = 0;
};
inline constexpr int64_t kLargestPieceBytes = int64_t{8} << 20;

// Called after each piece on disk with the bytes written so far: progress for watchdogs.
using ProgressFn = void (*)(void* context, int64_t bytes);

// Writes and syncs a new file; tensors lie in the order given, the first at a multiple of 256
// bytes. Returns the XXH3-128 digest of each tensor's bytes, in order. On error the file may exist
// in part. `reader`: of all tensors' data; nullptr: it is the host's.
StatusOr<std::vector<std::string>> WriteSafetensors(const std::string& path,
                                                    std::span<const TensorToWrite> tensors,
                                                    ProgressFn progress, void* context,
                                                    PieceReader* reader = nullptr);

// An open file whose header was checked: every tensor lies inside the file and has the bytes its
// shape needs.
class SafetensorsReader {
 public:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    int64_t offset = 0;  // in the file
    int64_t bytes = 0;
  };

  static StatusOr<SafetensorsReader> Open(const std::string& path);
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Reads a whole tensor into out (out.size() == its bytes).
  Status Read(const Entry& entry, std::span<std::byte> out) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  base::Fd fd_;
  std::map<std::string, Entry> entries_;
};

}  // namespace mt::checkpoint
