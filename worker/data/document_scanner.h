// Finds the documents of one text file, without copying or decoding them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::data {

// Where documents begin and end in the input.
enum class DocumentRule {
  kWholeFile,  // one document per file
  kSeparator,  // records between lines that equal the separator; empty records are dropped
  kJsonLines,  // one JSON object per line; blank lines are skipped
};

// Bytes [offset, offset + bytes) of the file; the line is where they begin, from 1 on.
struct DocumentSpan {
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t line = 1;
};

// Calls `visit` for each document in file order; an error of `visit` ends the scan. A record keeps
// its line ends, a JSON line does not. A separator line may end in "\r\n".
Status ScanDocuments(std::string_view text, DocumentRule rule, std::string_view separator,
                     const std::function<Status(const DocumentSpan&)>& visit);

// The string under `key` of one JSON object. kInvalidArgument where the line is not such an object.
StatusOr<std::string> JsonText(std::string_view line, const std::string& key);

}  // namespace mt::data
