// Writes a file of tensors, safetensors or of another format, whose bytes come one after another,
// so that no tensor has to be in memory as a whole. Blocking; used by one thread. Errors name the
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

class TensorStream {
 public:
  // Creates the file and writes its header: the tensors in this order, and `metadata` (texts by
  // name), padded to a multiple of 8 bytes. kAlreadyExists if the file exists.
  static StatusOr<TensorStream> Create(const std::string& path,
                                       const std::vector<StreamTensor>& tensors,
                                       const std::map<std::string, std::string>& metadata);
  // The same of any format: a header, behind which `bytes` of tensors follow.
  static StatusOr<TensorStream> CreateWith(const std::string& path, std::string_view header,
                                           int64_t bytes);

  // The next bytes of the tensors; no more than they have (CHECK).
  Status Append(std::span<const std::byte> bytes);
  // Syncs the file; all bytes of all tensors were appended (CHECK).
  Status Finish();
  int64_t file_bytes() const { return at_; }

 private:
  std::string path_;
  base::Fd fd_;
  int64_t at_ = 0;    // bytes written
  int64_t left_ = 0;  // bytes of tensors that have not come yet
};

}  // namespace mt::hf
