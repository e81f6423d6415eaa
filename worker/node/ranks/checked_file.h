// A file of the agent's state that exists whole or not at all: 8 bytes that say what it is, 8 bytes
// of checksum, a protobuf message. Mode 0600. Functions block.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::node {

// Writes beside, syncs, renames; `magic` has 8 bytes.
Status WriteCheckedFile(const std::string& path, std::string_view magic, std::string_view body);
// The body. kNotFound: there is no file; kDataLoss: another magic, or a wrong checksum.
StatusOr<std::string> ReadCheckedFile(const std::string& path, std::string_view magic);

}  // namespace mt::node
