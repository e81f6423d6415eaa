// GPT-2's pattern ends every piece before white space that follows a letter or digit, and begins
// the next one with that space.
#include "worker/data/prepare/document_cut.h"

#include "worker/data/tokenizer.h"

namespace mt::data {
namespace {

bool IsAsciiWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

}  // namespace

CutRule CutRuleOf(const Tokenizer& tokenizer) {
  if (tokenizer.name() == "byte") return CutRule::kAnywhere;
  if (tokenizer.name() == "null") return CutRule::kSpace;
  if (tokenizer.name() == "gpt2_bpe") return CutRule::kAfterWord;
  return CutRule::kNowhere;
}

size_t LastCut(std::string_view text, CutRule rule) {
  if (rule == CutRule::kAnywhere) return text.size();
  if (rule == CutRule::kNowhere) return 0;
  if (rule == CutRule::kSpace) {
    const size_t space = text.find_last_of(" \t\r\n");
    return space == std::string_view::npos ? 0 : space;
  }
  for (size_t at = text.rfind(' '); at != std::string_view::npos && at > 0;
       at = text.rfind(' ', at - 1)) {
    if (IsAsciiWord(text[at - 1])) return at;
  }
  return 0;
}

}  // namespace mt::data
