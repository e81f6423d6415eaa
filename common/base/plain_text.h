// Text that came from elsewhere, as a terminal may show it: without the bytes by which it could
// write over other lines, hide itself, change colours or titles, or turn its own direction. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::base {

// The text with every control character (but line feed and tab), every mark of direction or
// invisible separator, and every byte that is not UTF-8 written out: ESC becomes "\x1b", U+202E
// "\u202e". Cleaned again it stays as it is.
std::string CleanText(std::string_view text);
// The same on one line: line feeds and tabs become blanks.
std::string CleanLine(std::string_view text);

// A JSON string of the text, quotes included, which is a YAML scalar, too. What is not UTF-8 passes
// as it is.
std::string JsonQuoted(std::string_view text);

// What text of people's own must not have: "" for UTF-8 without control characters but line feeds
// and tabs, whatever else it has (joiners and marks of direction are a part of some scripts); else
// the first one: "the control character U+001B", "the byte 0xff, which is no UTF-8".
std::string ControlIn(std::string_view text);

// True for UTF-8 without control characters (line feed and tab are some) and marks of direction.
bool IsPlainText(std::string_view text);

inline constexpr size_t kMaxNodeNameBytes = 253;  // as a host's name

// OK for a name that can be shown, typed as an argument and be part of a path: plain text of 1 to
// `max_bytes` bytes without blanks and '/', not beginning with '-', and neither "." nor "..".
// InvalidArgument otherwise; `what` ("a node's name") begins the message.
Status CheckName(std::string_view what, std::string_view name, size_t max_bytes);

// OK for a label that can be shown and selected by: a name of plain text that is not empty, does
// not begin with '-' and is neither "." nor "..", and a value of plain text. InvalidArgument
// otherwise; `what` begins the message.
Status CheckLabel(std::string_view what, std::string_view name, std::string_view value);

}  // namespace mt::base
