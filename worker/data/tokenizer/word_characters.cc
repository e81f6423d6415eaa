// Only the neighbours of an added token are asked about: a search, not a table.
#include "worker/data/tokenizer/word_characters.h"

#include <algorithm>

namespace mt::data {

bool IsWordCharacter(uint32_t code) {
  const std::span<const CodeRange> ranges = WordCharacterRanges();
  const auto after = std::ranges::upper_bound(ranges, code, {}, &CodeRange::first);
  return after != ranges.begin() && code <= std::prev(after)->last;
}

}  // namespace mt::data
