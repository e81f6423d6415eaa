// Writes a Megatron indexed data set as a stream: tokens go to disk as they come, only 4 bytes per
// sequence and 8 per document stay in memory. Both files carry temporary names until Finish; a
// writer that is destroyed before removes them. One thread.
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
  // Folders of `prefix` must exist. `type` must be an integer type (CHECK).
  static StatusOr<std::unique_ptr<IndexedDatasetWriter>> Create(const std::string& prefix,
                                                                TokenType type);
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;
  ~IndexedDatasetWriter();

  // Appends one sequence to the current document. kInvalidArgument where a token does not fit the
  // type or the sequence has 2^31 tokens or more.
  Status AddSequence(std::span<const int32_t> tokens);
  // Ends the current document; one without sequences still gets its entry.
  void EndDocument();
  // Syncs, then renames .bin and .idx into place, .idx last: a crash leaves the old pair, or no
  // .idx. Replaces existing files. Call once, after EndDocument of the last document (CHECK).
  Status Finish();

  int64_t num_sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_documents() const { return static_cast<int64_t>(documents_.size()) - 1; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  IndexedDatasetWriter(std::string prefix, TokenType type);
  template <class T>
  Status Append(std::span<const int32_t> tokens);
  Status FlushBin();
  Status WriteIdx();

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
