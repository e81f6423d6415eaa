// Converts text to an indexed data set: the library behind `mtctl data prepare`. Text is passed to
// the tokenizer byte by byte as it is, without any normalisation. Memory is bounded whatever the
// input (README.md); the result is the same for any number of threads, and for a run that was
// killed and begun again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/prepare/document_order.h"
#include "worker/data/prepare/text_batch.h"
#include "worker/data/token_type.h"
#include "worker/data/tokenizer.h"

namespace mt::data {

// Progress of the conversion; bytes are those of the inputs on disk, and of the tokens where
// documents are shuffled, which is a second pass.
struct PrepareProgress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;   // 0: not known, of standard input
  int64_t bytes_before = 0;  // done by an earlier run that this one goes on with
  int64_t documents = 0;
  int64_t tokens = 0;
  bool shuffling = false;
};

// Input, output and options of one conversion.
struct PrepareArgs {
  // Files, folders (all files below, by name; hidden ones are left out) and "-", in this order.
  std::vector<std::string> inputs{};
  std::string output_prefix{};  // path without ending; missing folders are created
  DocumentRule rule = DocumentRule::kWholeFile;
  std::string separator{};
  std::string jsonl_key{};
  bool append_eod = false;         // append the tokenizer's EOD to each document that has tokens
  bool shuffle_documents = false;  // across all inputs, with DocumentOrder
  uint32_t seed = 0;
  bool overwrite = false;            // false: existing outputs are an error, kAlreadyExists
  bool restart = false;              // forget what an interrupted run has left
  bool refuse_one_document = false;  // a result of one document with tokens, with kOneDocument
  int threads = 0;                   // that encode; 0: as many as the machine has, at most 16
  const Tokenizer* tokenizer = nullptr;
  TokenizerConfig tokenizer_files{};  // its files, which are kept beside the data; empty: not
  // Called by the calling thread every few MiB of input and at the end. Returning false interrupts
  // the run (kCancelled), which can be gone on with. May be empty.
  std::function<bool(const PrepareProgress&)> progress{};
  // Judges the first kJudgedBytes of standard input. May be empty.
  std::function<Status(std::string_view beginning)> judge{};
  // For tests: the sizes that a long input would need.
  size_t batch_bytes = size_t{1} << 20;
  size_t most_document_bytes = size_t{64} << 20;
  int64_t record_every_bytes = int64_t{256} << 20;
  int64_t most_listed_documents = DocumentOrder::kMostListed;
};

// Why one document in all is seldom meant, and what to do.
extern const std::string_view kOneDocument;

// Statistics of the finished conversion.
struct PrepareStats {
  int64_t files = 0;
  int64_t bytes = 0;  // of the inputs on disk; of standard input, as read
  int64_t documents = 0;
  int64_t empty_documents = 0;  // documents without tokens; included in `documents`
  int64_t tokens = 0;
  bool resumed = false;  // went on with what an earlier run had left
  TokenType token_type = TokenType::kU16;
};

// Runs the conversion; blocks until it is done. What is under the output's name changes only at the
// end. After a failure of the disk, a kill or a cancellation the same call goes on; after a refusal
// of one document the same call without refuse_one_document does, from the end of the encoding, and
// any other begins anew; after others nothing is left. kInvalidArgument for inconsistent arguments,
// input without text and malformed JSON (with file:line); kAlreadyExists as above;
// kFailedPrecondition where an interrupted run of other inputs or options has left its files; else
// errors of the files.
StatusOr<PrepareStats> Prepare(const PrepareArgs& args);

}  // namespace mt::data
