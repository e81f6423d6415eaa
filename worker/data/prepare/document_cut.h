// Where a long document may be cut so that its parts have the same tokens as the whole.
#pragma once

#include <cstddef>
#include <string_view>

namespace mt::data {

class Tokenizer;

enum class CutRule {
  kAnywhere,   // a token is a byte
  kSpace,      // tokens are words between white space
  kAfterWord,  // between a letter or digit of ASCII and a space: no piece of text that BPE merges
               // within spans it
  kNowhere,    // a document is encoded as a whole
};

CutRule CutRuleOf(const Tokenizer& tokenizer);

// The last place in `text` where it may be cut; 0 where there is none.
size_t LastCut(std::string_view text, CutRule rule);

}  // namespace mt::data
