// Text files to an indexed data set: the library behind `mtctl data prepare`. Bytes are passed to
// the tokenizer as they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/document_scanner.h"
#include "worker/data/token_type.h"
#include "worker/data/tokenizer.h"

namespace mt::data {

struct PrepareProgress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
};

struct PrepareArgs {
  std::vector<std::string> inputs{};  // regular files, read in this order
  std::string output_prefix{};        // "<prefix>.bin", "<prefix>.idx"; missing folders are made
  DocumentRule rule = DocumentRule::kWholeFile;
  std::string separator{};
  std::string jsonl_key{};
  bool append_eod = false;         // the tokenizer's EOD after each document
  bool shuffle_documents = false;  // over all inputs, by ShuffleStream(seed)
  uint32_t seed = 0;
  bool overwrite = false;  // else existing outputs are kAlreadyExists
  const Tokenizer* tokenizer = nullptr;
  // Called now and then (every few MiB) and at the end; false cancels (kCancelled, nothing is left
  // behind). May be empty.
  std::function<bool(const PrepareProgress&)> progress{};
};

struct PrepareStats {
  int64_t files = 0;
  int64_t bytes = 0;  // of input
  int64_t documents = 0;
  int64_t empty_documents = 0;  // counted in documents: an entry without tokens
  int64_t tokens = 0;
  TokenType token_type = TokenType::kU16;
};

// On any error no output exists that did not before. Malformed JSON: kInvalidArgument with
// file:line.
StatusOr<PrepareStats> Prepare(const PrepareArgs& args);

}  // namespace mt::data
