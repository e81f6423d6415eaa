// Documents of an unfinished data set by their number, for reading them in another order. Memory is
// an eighth of a byte per document. Not thread-safe; blocks on disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::data {

class PlacedDocuments {
 public:
  // `lengths` holds an i32 for each document, `bin` their tokens, of `token_bytes` each.
  static StatusOr<PlacedDocuments> Open(const std::string& bin, const std::string& lengths,
                                        int64_t documents, int64_t token_bytes);

  // Hands the tokens of a document to `take`, in pieces of at most 4 MiB, and returns their number.
  StatusOr<int64_t> Read(int64_t document, const std::function<Status(std::string_view)>& take);

 private:
  Status ReadAt(const base::Fd& fd, const std::string& path, int64_t offset, size_t bytes);

  std::string bin_path_, lengths_path_;
  base::Fd bin_, lengths_;
  int64_t documents_ = 0;
  int64_t token_bytes_ = 0;
  std::vector<int64_t> firsts_;  // token at which each 64th document begins
  std::string buffer_;
};

}  // namespace mt::data
