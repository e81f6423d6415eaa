// Where what a reader writes goes: a file of this process, or whoever gave it the job.
#pragma once

#include <cstdio>
#include <functional>
#include <string_view>

#include "common/base/status.h"

namespace mt::decode {

// Takes the next piece of the text; called on one thread. An error is final: nothing is written
// after it.
using TextSink = std::function<Status(std::string_view text)>;

// Writes and flushes. `file` must outlive the sink. kDataLoss: it does not take the text.
TextSink ToFile(std::FILE* file);

}  // namespace mt::decode
