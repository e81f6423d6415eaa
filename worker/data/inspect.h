// Figures about an indexed data set, for `mtctl data inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/token_type.h"

namespace mt::data {

struct InspectReport {
  std::string prefix;
  std::string idx_digest;
  TokenType token_type = TokenType::kU16;
  int64_t documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t bin_bytes = 0;
  int64_t min_length = 0;  // of sequences, in tokens
  int64_t max_length = 0;
  double mean_length = 0;
  std::vector<int32_t> first_tokens;  // of the data set
};

// Opens (and so checks) the data set; reads up to `preview_tokens` tokens from its start.
StatusOr<InspectReport> Inspect(const std::string& prefix, int64_t preview_tokens);

}  // namespace mt::data
