// Writes a Megatron indexed data set as a stream: tokens go to disk as they come, and only 4 bytes
// per sequence and 8 per document stay in memory. Both files have temporary names until Finish; a
// writer that is destroyed earlier removes them. Not thread-safe; every call may block on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/data/token_type.h"

namespace mt::data {

class IndexedDatasetWriter {
 public:
  // Creates the temporary files beside `prefix`, whose folder must exist. `type` must be an integer
  // type (CHECK). Errors: those of creating files.
  static StatusOr<std::unique_ptr<IndexedDatasetWriter>> Create(const std::string& prefix,
                                                                TokenType type);
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;
  ~IndexedDatasetWriter();

  // Appends one sequence to the current document. kInvalidArgument if a token does not fit the type
  // or the sequence has 2^31 tokens or more.
  Status AddSequence(std::span<const int32_t> tokens);
  // Ends the current document. A document without sequences still gets its entry.
  void EndDocument();
  // Syncs both files, then renames them into place, .bin first. Existing files are replaced; after
  // a crash either the old pair is there, or no .idx. Call once, after EndDocument of the last
  // document (CHECK).
  Status Finish();

  int64_t num_sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_documents() const { return static_cast<int64_t>(documents_.size()) - 1; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  IndexedDatasetWriter(std::string prefix, TokenType type);
  template <class T>
  Status Append(std::span<const int32_t> tokens);
  // FlushBin writes the buffered tokens; WriteIdx writes the whole index.
  Status FlushBin();
  Status WriteIdx() const;

  const std::string prefix_;
  const TokenType type_;
  std::string bin_temporary_;
  std::string idx_temporary_;
  base::Fd bin_;
  base::Fd idx_;
  std::string buffer_;  // bytes of .bin not yet written
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_{0};
  int64_t num_tokens_ = 0;
  bool finished_ = false;
};

}  // namespace mt::data
