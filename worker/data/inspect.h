// Statistics of an indexed data set, for `mtctl data inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/token_type.h"

namespace mt::data {

// Counts and lengths of a data set; see IndexedDataset.
struct InspectReport {
  std::string prefix;
  std::string idx_digest;
  TokenType token_type = TokenType::kU16;
  int64_t documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t bin_bytes = 0;
  int64_t min_length = 0;  // shortest sequence, in tokens
  int64_t max_length = 0;
  double mean_length = 0;
  std::vector<int32_t> first_tokens;  // up to preview_tokens, from the start
};

// Opens (and thereby validates) the data set and reads up to `preview_tokens` tokens from its
// start. Errors are those of IndexedDataset::Open and Read.
StatusOr<InspectReport> Inspect(const std::string& prefix, int64_t preview_tokens);

}  // namespace mt::data
