// Writes an .idx (FORMAT.md) from a stream of lengths and document entries, in memory that does not
// grow: the counts are known before, so each of its three arrays has its place. Not thread-safe;
// every call may block on disk.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "worker/data/output_file.h"
#include "worker/data/token_type.h"

namespace mt::data {

class IdxWriter {
 public:
  // What the header says. `document_entries` is one more than the documents.
  struct Shape {
    TokenType type = TokenType::kU16;  // an integer type (CHECK)
    int64_t sequences = 0;
    int64_t document_entries = 1;
  };
  // Creates the file, or replaces its content. Errors: those of the file.
  static StatusOr<IdxWriter> Create(const std::string& path, const Shape& shape);

  // The next sequence, which follows the one before in the .bin.
  Status AddSequence(int32_t tokens);
  // The next entry of the document array: 0 first, the number of sequences last.
  Status AddDocumentEntry(int64_t first_sequence);
  // Writes what is left and syncs. All that Create was told of has been added (CHECK).
  Status Finish();

 private:
  // One array of the file and what of it is not yet written.
  struct Array {
    int64_t at = 0;  // byte of the file where `pending` goes
    std::string pending{};
  };
  template <class T>
  Status Put(Array* array, T value);
  Status Write(Array* array);

  OutputFile file_;
  Shape shape_;
  std::array<Array, 3> arrays_;  // lengths, offsets, documents
  int64_t sequences_ = 0;
  int64_t document_entries_ = 0;
  int64_t offset_ = 0;
};

}  // namespace mt::data
