// The result of a verb as a sentence for people. Pure.
#pragma once

#include <string>

namespace megatrain::v1 {
class Operation;
}

namespace mt::client {

// For a checkpoint: "checkpoint of tiny: step 120, /ckpt/tiny/step-00000120-e0001, 1.2 MiB, 0.35
// s", with `wide` also tokens, stall and digest. For another finished verb: "pause of tiny: done",
// or its result. For an operation that is not done: "pause of tiny accepted: operations/...".
// Errors are left to the caller. Ends with a newline.
std::string OperationText(const megatrain::v1::Operation& operation, const std::string& job,
                          bool wide);

}  // namespace mt::client
