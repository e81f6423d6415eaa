// Writes an indexed data set of tokens that are bytes already: copies of other data sets and of
// shards. 4 bytes per sequence and 8 per document stay in memory. The files have temporary names
// until Finish; a writer that is destroyed earlier removes them. Not thread-safe; blocks on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/output_file.h"
#include "worker/data/token_type.h"
#include "worker/data/tokenizer.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {

class RawWriter {
 public:
  // kAlreadyExists if the pair is there and may not be replaced.
  static Status CheckFree(const std::string& prefix, bool overwrite);
  // CheckFree; makes missing folders.
  static StatusOr<std::unique_ptr<RawWriter>> Create(const std::string& prefix, TokenType type,
                                                     bool overwrite);
  RawWriter(const RawWriter&) = delete;
  RawWriter& operator=(const RawWriter&) = delete;
  ~RawWriter();

  // The next bytes of the sequence that is open, whole tokens.
  Status Append(std::string_view tokens);
  // Ends it. kInvalidArgument if it has 2^31 tokens or more.
  Status EndSequence();
  void EndDocument() { documents_.push_back(num_sequences()); }
  // Nothing is appended from here on: syncs the tokens, so that a disk that is full is told here at
  // the latest, and closes their file, so that many writers may wait for each other to finish.
  Status EndTokens();
  // Syncs both files and moves them into place. An old record of a tokenizer goes before they
  // appear and the new one comes after them, and the files of the tokenizer where `files` has them
  // (KeepTokenizer), as prepare does.
  Status Finish(const std::optional<TokenizerRecord>& record,
                const std::optional<TokenizerConfig>& files = std::nullopt);

  int64_t num_sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_documents() const { return static_cast<int64_t>(documents_.size()) - 1; }
  int64_t num_tokens() const { return (ended_ ? bin_bytes_ : bin_.bytes()) / SizeOf(type_); }

 private:
  RawWriter(std::string prefix, TokenType type) : prefix_(std::move(prefix)), type_(type) {}

  const std::string prefix_;
  const TokenType type_;
  OutputFile bin_;
  bool ended_ = false;               // EndTokens was called
  int64_t bin_bytes_ = 0;            // then
  std::string bin_path_, idx_path_;  // temporary
  int64_t sequence_begin_ = 0;       // token
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_{0};
};

}  // namespace mt::data
