// Converts text files to an indexed data set: the library behind `mtctl data prepare`. Text is
// passed to the tokenizer byte by byte as it is, without any normalisation.
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

// Progress of the conversion; bytes are those of the input.
struct PrepareProgress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
};

// Input, output and options of one conversion.
struct PrepareArgs {
  std::vector<std::string> inputs{};  // regular files, in this order
  std::string output_prefix{};        // path without ending; missing folders are created
  DocumentRule rule = DocumentRule::kWholeFile;
  std::string separator{};
  std::string jsonl_key{};
  bool append_eod = false;         // append the tokenizer's EOD to each document
  bool shuffle_documents = false;  // across all inputs, with ShuffleStream(seed)
  uint32_t seed = 0;
  bool overwrite = false;  // false: existing outputs are an error, kAlreadyExists
  const Tokenizer* tokenizer = nullptr;
  // Called every few MiB of input and at the end. Returning false cancels (kCancelled) and leaves
  // nothing behind. May be empty.
  std::function<bool(const PrepareProgress&)> progress{};
};

// Statistics of the finished conversion.
struct PrepareStats {
  int64_t files = 0;
  int64_t bytes = 0;  // of the input
  int64_t documents = 0;
  int64_t empty_documents = 0;  // documents without tokens; included in `documents`
  int64_t tokens = 0;
  TokenType token_type = TokenType::kU16;
};

// Runs the conversion; blocks until it is done. After any error no output exists that did not exist
// before. kInvalidArgument for inconsistent arguments, input without text and malformed JSON (with
// file:line); kAlreadyExists, kCancelled as above; else errors of the files.
StatusOr<PrepareStats> Prepare(const PrepareArgs& args);

}  // namespace mt::data
