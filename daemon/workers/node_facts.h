// What a registering worker says of its node: whether it makes sense, and the node's row that it
// becomes. Pure.
#pragma once

#include <cstdint>

#include "common/base/status.h"

namespace megatrain::v1 {
class Node;
class Register;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;

// InvalidArgument where a name, an id or a slot is missing or impossible.
Status CheckRegister(const v1::Register& hello);
// Fills what the worker says into an empty node; `now_us` is the time of its registration.
void FillNode(const v1::Register& hello, int64_t now_us, v1::Node* node);

}  // namespace mt::daemon
