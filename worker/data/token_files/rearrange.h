// Data sets made of others, document by document: several joined to one, one divided into several.
// Tokens are copied as they are; sequences keep their documents, data sets their tokenizer's
// record.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/token_type.h"

namespace mt::data {

// Called with the bytes of tokens copied so far and those of all; may be empty.
using CopyProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// What was written.
struct WrittenDataset {
  std::string prefix{};
  TokenType token_type = TokenType::kU16;
  int64_t documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  std::vector<std::string> notes{};  // what was left out or is to be known; a sentence each
};

struct MergeArgs {
  std::vector<std::string> inputs{};  // prefixes, in this order; one type of tokens
  std::string output{};
  bool overwrite = false;
  CopyProgress progress{};
};
// Blocks until it is done; an error leaves no output. Inputs without a document are left out, with
// a note. Errors: those of IndexedDataset::Open; kInvalidArgument where types or the tokenizers'
// records differ, no input has a document, or the output is one of the inputs; kAlreadyExists.
StatusOr<WrittenDataset> MergeDatasets(const MergeArgs& args);

struct DivideArgs {
  std::string input{};
  std::string output{};          // part i is <output>_<i>, from 0
  std::vector<double> shares{};  // positive; of their sum
  bool overwrite = false;
  CopyProgress progress{};
};
// Part i ends at document round(D * sum of the first i shares), as a job's data.split does with
// sequences. Blocks; each part is whole or not there, and none appears before the tokens of all
// are written. kInvalidArgument for shares that are not positive or a part that would have no
// document; else as above.
StatusOr<std::vector<WrittenDataset>> DivideDataset(const DivideArgs& args);

}  // namespace mt::data
