// The files that a conversion reads, and what identifies them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

struct InputList {
  std::vector<std::string> paths{};
  std::vector<int64_t> bytes{};  // on disk, one each; 0 for standard input
  int64_t total_bytes = 0;
  bool has_standard_input = false;
  std::string digest{};  // of names, sizes and times
};

// Files as they are; folders as all files below them, ordered by name, without hidden ones. Errors:
// kNotFound, kInvalidArgument for what is neither, for a folder without files, and for "-" twice.
StatusOr<InputList> ListInputs(const std::vector<std::string>& inputs);

}  // namespace mt::data
