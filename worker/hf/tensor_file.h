// Writes a file of tensors, safetensors or of another format, whose bytes come in any order, so
// that no tensor has to be in memory as a whole. Blocking; an object may be used by several
// threads. Errors name the file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::hf {

struct StreamTensor {
  std::string name;
  std::string dtype;  // as in the file: "F32"
  std::vector<int64_t> shape;
  int64_t bytes() const;
};

class TensorFile {
 public:
  // Creates the file and writes its header: the tensors in this order, and `metadata` (texts by
  // name), padded to a multiple of 8 bytes. kAlreadyExists if the file exists.
  static StatusOr<std::unique_ptr<TensorFile>> Create(
      const std::string& path, const std::vector<StreamTensor>& tensors,
      const std::map<std::string, std::string>& metadata);
  // The same of any format: a header, behind which `bytes` of tensors follow.
  static StatusOr<std::unique_ptr<TensorFile>> CreateWith(const std::string& path,
                                                          std::string_view header, int64_t bytes);

  // Bytes of the tensors, from `offset` behind the header on; within them (CHECK), each once.
  Status WriteAt(int64_t offset, std::span<const std::byte> bytes);
  // Syncs the file, once all bytes of all tensors were written (CHECK).
  Status Finish();

 private:
  TensorFile(std::string path, base::Fd fd, int64_t begin, int64_t bytes);

  const std::string path_;
  const base::Fd fd_;
  const int64_t begin_, bytes_;  // of the tensors
  std::atomic<int64_t> left_;    // bytes of tensors that have not come yet
};

}  // namespace mt::hf
