// This build's version, as `--version` prints it and as workers and coordinator report it to each
// other.
#pragma once

#include <string_view>

namespace mt::rpc {

std::string_view Version();  // "0.1.0"

}  // namespace mt::rpc
