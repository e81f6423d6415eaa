// Finds the documents of one text file without copying or decoding them, for `mtctl data prepare`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::data {

// How the input is divided into documents.
enum class DocumentRule {
  kWholeFile,  // one document per file
  kSeparator,  // documents between separator lines; empty ones are dropped
  kJsonLines,  // one JSON object per line; blank lines are skipped
};

// Bytes [offset, offset + bytes) of the file. `line` is the number of the line where they begin,
// counted from 1.
struct DocumentSpan {
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t line = 1;
};

// Calls `visit` for each document in file order; an error of `visit` ends the scan and is returned.
// A document between separators keeps its line ends, a JSON line loses its own. A separator line
// may end in "\r\n".
Status ScanDocuments(std::string_view text, DocumentRule rule, std::string_view separator,
                     const std::function<Status(const DocumentSpan&)>& visit);

// Returns the string under `key` of one JSON object. kInvalidArgument if the line is no JSON object
// or has no such string.
StatusOr<std::string> JsonText(std::string_view line, const std::string& key);

}  // namespace mt::data
