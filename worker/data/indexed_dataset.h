// Reads a Megatron indexed data set, `<prefix>.idx` and `<prefix>.bin` (FORMAT.md), or one with
// DeepSpeed's codes of types. Both files are mapped, so the ranks of a node share one copy in the
// page cache. Open validates everything that later reads rely on: no read leaves the files,
// whatever they contain, nor does one end the process where a file is cut or written over
// meanwhile. Immutable after Open; all methods are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/file_watch.h"
#include "worker/data/idx_scan.h"
#include "worker/data/mapped_file.h"
#include "worker/data/token_type.h"

namespace mt::data {

class IndexedDataset {
 public:
  // Maps and validates both files; blocks for one pass over the .idx, which with a `cache` one
  // process takes for all (idx_scan.h). `prefix` is the path without ".bin" or ".idx". Errors name
  // the file, what is wrong and what to do: kNotFound (missing), kDataLoss (truncated or
  // inconsistent), kInvalidArgument (not an .idx, float or multimodal data).
  static StatusOr<std::shared_ptr<const IndexedDataset>> Open(const std::string& prefix,
                                                              const base::FileOpener& open = {},
                                                              const DataCache& cache = {});

  const std::string& prefix() const { return prefix_; }
  TokenType token_type() const { return token_type_; }
  int64_t num_sequences() const { return num_sequences_; }
  // Documents; the .idx has one entry more, which marks the end.
  int64_t num_documents() const { return num_document_entries_ - 1; }
  int64_t num_tokens() const { return scan_.num_tokens; }
  int64_t bin_bytes() const { return static_cast<int64_t>(bin_.size()); }
  // Tokens of the longest sequence.
  int32_t max_length() const { return scan_.max_length; }
  // XXH3-128 of the .idx file as 32 hex digits: identifies the data set in checkpoints and cache
  // files.
  const std::string& idx_digest() const { return scan_.digest; }

  // SampledDigest of the .bin. Tells other tokens behind the same index.
  const std::string& bin_digest() const { return bin_digest_; }

  // Number of tokens in a sequence, 0 <= sequence < num_sequences(); not checked.
  int32_t length(int64_t sequence) const {
    int32_t value;
    std::memcpy(&value, lengths_ + sequence * int64_t{sizeof(value)}, sizeof(value));
    return value;
  }
  // First sequence of a document; document == num_documents() gives num_sequences().
  int64_t document_begin(int64_t document) const;
  // The document that a sequence is of.
  int64_t DocumentOf(int64_t sequence) const;
  // The tokens of a sequence as they are in the .bin; not checked as length() is not, and to be
  // believed only where Intact() is OK afterwards.
  std::string_view SequenceBytes(int64_t sequence) const;
  // Number of tokens in sequences [begin, end). Looks at no more than 2 kScanBlock lengths.
  int64_t CountTokens(int64_t begin, int64_t end) const;

  // Copies out.size() tokens of `sequence`, beginning at token `offset`, widened to int32. The
  // range must lie within the sequence (CHECK). kInvalidArgument if a token is outside [0,
  // vocab_size), with file, position, id, vocabulary and document; kDataLoss as Intact, or where
  // the .idx was written over. May block on disk.
  Status Read(int64_t sequence, int64_t offset, int64_t vocab_size, std::span<int32_t> out) const;

  // kDataLoss if a read so far has met bytes that are gone, of either file, with its sizes then and
  // now.
  Status Intact() const;
  // Of both files, for later looks. Another content of the .idx is always refused.
  std::vector<FileWatch> Watches(bool bin_may_change) const;

 private:
  IndexedDataset() = default;
  // The steps of Open: validate the header, then read through sequences and documents, then hold
  // what is named against the .bin.
  Status ParseHeader();
  // Sets the type that the header's code means: Megatron's, or DeepSpeed's where that one fits the
  // .bin. kInvalidArgument for what is no integer.
  Status SettleType(uint8_t code);
  // Whether all tokens of so many bytes, and the last sequence, end where the .bin does.
  bool FillsBin(int64_t token_bytes) const;
  StatusOr<IdxScan> Scan() const;
  Status ScanSequences(IdxScan* scan) const;
  Status CheckExtent() const;
  Status CheckDocuments() const;
  int64_t TokensBefore(int64_t sequence) const;
  // Offset of a sequence in the .bin.
  int64_t byte_offset(int64_t sequence) const;
  Status Lost(const std::string& path, const MappedFile& file) const;
  // `sequence` for the message.
  template <class T>
  Status Widen(const std::byte* source, int64_t sequence, int64_t vocab_size,
               std::span<int32_t> out) const;
  Status WidenAs(const std::byte* source, int64_t sequence, int64_t vocab_size,
                 std::span<int32_t> out) const;

  std::string prefix_;
  std::string idx_path_;
  std::string bin_path_;
  base::FileOpener open_;
  std::string idx_sample_;  // SampledDigest
  std::string bin_digest_;
  MappedFile idx_;
  MappedFile bin_;
  TokenType token_type_ = TokenType::kU16;
  int64_t num_sequences_ = 0;
  int64_t num_document_entries_ = 0;
  IdxScan scan_;
  // Pointers into idx_. They are not aligned, because the header has 34 bytes, so values are loaded
  // with memcpy.
  const std::byte* lengths_ = nullptr;    // i32 [num_sequences]
  const std::byte* offsets_ = nullptr;    // i64 [num_sequences], bytes into .bin
  const std::byte* documents_ = nullptr;  // i64 [num_document_entries]
};

}  // namespace mt::data
