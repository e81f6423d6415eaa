// Where a long document may be cut so that its parts have the same tokens as the whole.
#pragma once

#include <cstddef>
#include <string_view>

#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {

// The last place in `text` where it may be cut; 0 where there is none. What follows `text` is not
// known, so a place near its end is left out where one of cuts.whole could go on there. `text`
// begins where the document does, or where it was cut before.
size_t LastCut(std::string_view text, const Cuts& cuts);

}  // namespace mt::data
