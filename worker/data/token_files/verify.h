// Reads a whole data set and says whether a job can be trained on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/token_files/rearrange.h"
#include "worker/data/token_type.h"

namespace mt::data {

struct VerifyArgs {
  std::string prefix{};
  int64_t vocab_size = 0;  // ids must be below; 0: any id from 0 to 2^31 - 1
  CopyProgress progress{};
};

struct VerifyReport {
  std::string idx_digest{};
  std::string tokens_digest{};  // of the bytes of all tokens, XXH3-128
  TokenType token_type = TokenType::kU16;
  int64_t documents = 0;
  int64_t empty_documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t largest_id = -1;         // -1 without tokens
  int64_t unreferenced_bytes = 0;  // of the .bin that no sequence covers
};

// Checks the header, sizes, pointers and document entries (IndexedDataset::Open), then every id.
// Blocks while it reads it all. Errors: those of Open; kInvalidArgument for the first id outside of
// the vocabulary, with its place.
StatusOr<VerifyReport> VerifyDataset(const VerifyArgs& args);

}  // namespace mt::data
