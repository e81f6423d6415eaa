// What is asked of Jobs.Decode, before any job is looked at. Pure.
#pragma once

#include "common/base/status.h"

namespace megatrain::v1 {
class Generate;
}

namespace mt::daemon {

namespace v1 = megatrain::v1;

// Fills in defaults and checks every field as of a job of kind generate, and what T6 bounds: the
// number of texts, the bytes of prompts and stop strings. kInvalidArgument (INVALID_REQUEST), by
// field; also for logprobs, which nobody would be given.
Status CompleteDecode(v1::Generate* generate);

}  // namespace mt::daemon
