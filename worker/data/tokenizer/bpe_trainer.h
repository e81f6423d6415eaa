// Trains a byte-level BPE vocabulary: the most frequent pair of neighbours becomes a token, again
// and again (Sennrich et al. 2016 section 3.2). The result depends on the texts and arguments
// alone, not on the number of threads. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"

namespace mt::data {

struct TrainTokenizerArgs {
  int64_t vocab_size = 0;               // with the 256 bytes and the special tokens
  std::string pattern{};                // by which text is cut; merges stay within the pieces
  std::vector<std::string> specials{};  // take the last ids; the first is end-of-document
  int64_t min_count = 2;                // of a pair that becomes a token
  int threads = 1;                      // that count pieces
  // Told at times, from the calling thread; returning false cancels (kCancelled). May be empty.
  std::function<bool(int64_t tokens)> progress{};
};

// The parts of the trained tokenizer, for HfFileText and MakeBpeTokenizer; `texts` are borrowed for
// the call. It has fewer tokens than asked for where no pair occurs min_count times any more.
// kInvalidArgument for a vocabulary that does not hold the bytes and specials, specials that are
// empty or equal, a pattern that PCRE2 refuses, and texts without bytes.
StatusOr<BpeParts> TrainTokenizer(const TrainTokenizerArgs& args,
                                  std::span<const std::string_view> texts);

}  // namespace mt::data
