// What `mtctl data prepare` refuses before it begins, because a run would show it hours later or
// not at all.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/prepare/text_batch.h"

namespace mt::data {
struct PrepareArgs;
}  // namespace mt::data

namespace mt::client {

// What is taken as it is though it is seldom meant.
struct PrepareConsent {
  bool json = false;
  bool one_document = false;
};

// kInvalidArgument, with what to do: a tokenizer that makes no tokens of text; an output that names
// a folder; inputs of a form that is not read, known by their first bytes; JSON that would become
// text as it is; one file that would be one document. An input that cannot be opened is left to the
// conversion. Opens every input, several at a time, and reads its first KiB, more where that is
// blank; not of standard input.
[[nodiscard]] Status CheckPrepare(const data::PrepareArgs& args, const std::string& tokenizer,
                                  const PrepareConsent& consent);

// The same of standard input, by its first bytes.
[[nodiscard]] Status CheckStandardInput(const data::PrepareArgs& args, std::string_view beginning,
                                        const PrepareConsent& consent);

}  // namespace mt::client
