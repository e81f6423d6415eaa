// Normalization form C as the tokenizers library has it: that of Unicode 9.0.0, whatever newer
// tables the machine's ICU has. What 9.0.0 does not know stays as it is and joins nothing. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::data {

inline constexpr std::string_view kNfcUnicodeVersion = "9.0";

// Characters that NFC might join, reorder or shorten are looked at together, in time that may grow
// with the square of their number.
inline constexpr size_t kMaxJoinedBytes = size_t{128} << 10;

// Whether `text` is as NFC leaves it by its bytes alone: none begins a character from U+0300 on.
bool IsSurelyNfc(std::string_view text);

// `text` in NFC. A run of bytes that are no UTF-8 stays as it is, and nothing joins across it.
// kInvalidArgument, by ErrorAt, for more than kMaxJoinedBytes in which no character stands apart
// from the one before it.
StatusOr<std::string> Nfc(std::string_view text);

}  // namespace mt::data
