// What `mtctl data prepare` refuses before it begins, because a run would show it hours later or
// not at all.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/prepare/text_batch.h"

namespace mt::data {
struct PrepareArgs;
struct PrepareStats;
}  // namespace mt::data

namespace mt::client {

// kInvalidArgument, with what to do: a tokenizer that makes no tokens of text; an output that names
// a folder; inputs of a form that is not read, known by their first bytes; lines of JSON that would
// become text as they are. An input that cannot be opened is left to the conversion. Reads the
// first KiB of the first thousand; not of standard input.
[[nodiscard]] Status CheckPrepare(const data::PrepareArgs& args, const std::string& tokenizer);

// The same of one input, by the first bytes of its text.
[[nodiscard]] Status CheckBeginning(const std::string& name, std::string_view beginning,
                                    data::DocumentRule rule);

// What a data set of one document means for a split, or "".
std::string PrepareNote(const data::PrepareStats& stats);

}  // namespace mt::client
