// Statistics of an indexed data set, for `mtctl data inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/token_type.h"

namespace mt::data {

// Sequences of `low` to `high` tokens.
struct LengthBin {
  int64_t low = 0;
  int64_t high = 0;
  int64_t sequences = 0;
};

// The first tokens of a document.
struct DocumentSample {
  int64_t document = 0;
  int64_t length = 0;  // of all of it
  std::vector<int32_t> tokens{};
};

// Counts and lengths of a data set; see IndexedDataset.
struct InspectReport {
  std::string prefix;
  std::string idx_digest;
  TokenType token_type = TokenType::kU16;
  int64_t documents = 0;
  int64_t empty_documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t bin_bytes = 0;
  int64_t min_length = 0;  // shortest sequence, in tokens
  int64_t max_length = 0;
  double mean_length = 0;
  std::vector<int32_t> first_tokens;    // up to preview_tokens, from the start
  std::vector<LengthBin> lengths;       // by powers of two, from the shortest to the longest
  std::vector<DocumentSample> samples;  // evenly spread, the first document among them
};

struct InspectArgs {
  std::string prefix{};
  int64_t preview_tokens = 16;
  int64_t samples = 0;         // documents
  int64_t sample_tokens = 64;  // of each, at most
};

// Opens (and thereby validates) the data set, passes over its index, holds a sample of its ids
// against the vocabulary of the record beside it, if there is one, and reads the tokens it shows.
// Errors are those of IndexedDataset::Open and Read.
StatusOr<InspectReport> Inspect(const InspectArgs& args);

}  // namespace mt::data
