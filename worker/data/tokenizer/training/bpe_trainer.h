// Trains a byte-level BPE vocabulary: the most frequent pair of neighbours becomes a token, again
// and again (Sennrich et al. 2016 section 3.2). Tokens, merges and ids are those of BpeTrainer of
// the tokenizers library with all 256 bytes as its initial alphabet, given each text as a whole.
// The result depends on the texts and arguments alone, not on the number of threads. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/training/piece_counts.h"

namespace mt::data {

struct TrainTokenizerArgs {
  int64_t vocab_size = 0;               // with the 256 bytes and the special tokens
  std::string pattern{};                // by which text is cut; merges stay within the pieces
  std::vector<std::string> specials{};  // take the first ids; the first is end-of-document
  int64_t min_count = 2;                // of a pair that becomes a token; 0 is as 1
  int threads = 1;                      // that count pieces
  // Told at times, from the calling thread; returning false cancels (kCancelled). May be empty.
  std::function<bool(int64_t tokens)> progress{};
};

// The parts of the trained tokenizer, for HfFileText and MakeBpeTokenizer; `texts` are borrowed for
// the call. It has fewer tokens than asked for where no pair occurs min_count times any more.
// kInvalidArgument for a vocabulary that does not hold the bytes and specials; specials that are
// empty, equal, or what a tokenizer.json writes for other bytes that become a token; what
// CountPieces refuses; and texts without bytes.
StatusOr<BpeParts> TrainTokenizer(const TrainTokenizerArgs& args,
                                  std::span<const TrainingText> texts);

}  // namespace mt::data
