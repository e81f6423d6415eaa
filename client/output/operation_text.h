// The result of a verb as a sentence. Pure.
#pragma once

#include <string>

namespace megatrain::v1 {
class Operation;
}

namespace mt::client {

// A checkpoint: "checkpoint of tiny: step 120, /ckpt/tiny/step-00000120-e0001, 1.2 MiB, 0.35 s",
// wide also tokens, stall and digest. Another verb that is done: "pause of tiny: done" and its
// result. One that is under way: its name. No error (that is the caller's);
// ends with a newline.
std::string OperationText(const megatrain::v1::Operation& operation, const std::string& job,
                          bool wide);

}  // namespace mt::client
