// Which characters are part of a word, where an added token must be a word of its own. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "worker/data/tokenizer/unicode.h"

namespace mt::data {

std::span<const CodeRange> WordCharacterRanges();  // ascending
bool IsWordCharacter(uint32_t code);

}  // namespace mt::data
