// What `mtctl data prepare` refuses before it begins, because a run would show it hours later or
// not at all.
#pragma once

#include <string>

#include "common/base/status.h"

namespace mt::data {
struct PrepareArgs;
struct PrepareStats;
}  // namespace mt::data

namespace mt::client {

// kInvalidArgument, with what to do: a tokenizer that makes no tokens of text; an output that names
// a folder; compressed inputs, known by their first bytes; lines of JSON that would become text as
// they are. An input that cannot be read is left to the conversion. Reads the first KiB of each.
[[nodiscard]] Status CheckPrepare(const data::PrepareArgs& args, const std::string& tokenizer);

// What a data set of one document means for a split, or "".
std::string PrepareNote(const data::PrepareStats& stats);

}  // namespace mt::client
