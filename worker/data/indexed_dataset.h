// Reads a Megatron indexed data set, `<prefix>.idx` and `<prefix>.bin` (FORMAT.md). Both files are
// mapped, so the ranks of a node share one copy in the page cache. Open checks everything that a
// read relies on: no later read leaves the files, whatever they contain. Immutable after Open; all
// methods are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"
#include "worker/data/mapped_file.h"
#include "worker/data/token_type.h"

namespace mt::data {

class IndexedDataset {
 public:
  // `prefix` is the path without ".bin"/".idx". Errors name the file, what is wrong and what to do:
  // kNotFound (missing), kDataLoss (truncated, inconsistent), kInvalidArgument (not an .idx, float
  // or multimodal data).
  static StatusOr<std::shared_ptr<const IndexedDataset>> Open(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType token_type() const { return token_type_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_document_entries_ - 1; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t bin_bytes() const { return static_cast<int64_t>(bin_.size()); }
  int32_t max_length() const { return max_length_; }
  // XXH3-128 of the .idx file, 32 hex digits: what checkpoints compare.
  const std::string& idx_digest() const { return idx_digest_; }

  // Tokens in a sequence, 0 <= sequence < num_sequences().
  int32_t length(int64_t sequence) const {
    int32_t value;
    std::memcpy(&value, lengths_ + sequence * int64_t{sizeof(value)}, sizeof(value));
    return value;
  }
  // First sequence of a document; document == num_documents() gives num_sequences().
  int64_t document_begin(int64_t document) const;
  // Sum of the lengths of sequences [begin, end).
  int64_t CountTokens(int64_t begin, int64_t end) const;

  // Copies out.size() tokens of `sequence`, from token `offset` on, widened to int32. The range
  // must lie within the sequence (CHECK). kInvalidArgument where a token is outside [0,
  // vocab_size): names file, position, id, vocabulary.
  Status Read(int64_t sequence, int64_t offset, int64_t vocab_size, std::span<int32_t> out) const;

 private:
  IndexedDataset() = default;
  Status ParseHeader();
  Status CheckSequences();
  Status CheckDocuments() const;
  int64_t byte_offset(int64_t sequence) const;
  template <class T>
  Status Widen(const std::byte* source, int64_t vocab_size, std::span<int32_t> out) const;

  std::string prefix_;
  std::string idx_path_;
  std::string bin_path_;
  std::string idx_digest_;
  MappedFile idx_;
  MappedFile bin_;
  TokenType token_type_ = TokenType::kU16;
  int64_t num_sequences_ = 0;
  int64_t num_document_entries_ = 0;
  int64_t num_tokens_ = 0;
  int32_t max_length_ = 0;
  // Into idx_. Not aligned (the header has 34 bytes), so they are read by memcpy.
  const std::byte* lengths_ = nullptr;    // i32 [num_sequences]
  const std::byte* offsets_ = nullptr;    // i64 [num_sequences], bytes into .bin
  const std::byte* documents_ = nullptr;  // i64 [num_document_entries]
};

}  // namespace mt::data
