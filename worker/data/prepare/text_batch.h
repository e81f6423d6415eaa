// What passes from thread to thread while a data set is made: a piece of one input with the
// documents in it, and later their tokens. A document may span several batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

// How the input is divided into documents.
enum class DocumentRule {
  kWholeFile,  // one document per file
  kSeparator,  // documents between separator lines; empty ones are dropped
  kJsonLines,  // one JSON object per line; blank lines are skipped
};

// Where reading goes on: what a resumed run needs to know of its inputs.
struct InputPosition {
  int64_t file = 0;    // index into the inputs
  int64_t offset = 0;  // bytes of its text, unpacked
  int64_t line = 1;    // number of the line there, from 1
  bool open = false;   // within a document
  bool mid_line = false;
  int64_t document_line = 1;  // where the document there begins
  friend bool operator==(const InputPosition&, const InputPosition&) = default;
};

// A document, or a part of one.
struct TextPiece {
  size_t begin = 0;  // in the batch's text
  size_t bytes = 0;
  bool begins = true;  // the document begins here
  bool ends = true;    // and ends here
  int64_t line = 1;    // where the document begins, for messages
  int64_t offset = 0;  // of this piece in the file's text; of JSON, in the document's
  int64_t tokens = 0;  // set by the encoder
};

struct TextBatch {
  int64_t number = 0;
  size_t file = 0;
  std::string text{};
  std::vector<TextPiece> pieces{};
  bool json = false;           // each piece is a line of JSON, not the text itself
  InputPosition next{};        // behind this batch
  bool can_resume = true;      // `next` says all
  int64_t file_bytes = 0;      // of all inputs, as they are on disk, read so far
  std::string tokens{};        // as they go into the .bin
  Status status = OkStatus();  // what went wrong behind the last piece
};

}  // namespace mt::data
