// Texts that all members of a group of host memory tell each other.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

// What each member gave, by index. Collective; blocks until all have come; errors are the group's.
StatusOr<std::vector<std::string>> Exchange(ProcessGroup& group, kernels::Stream& stream,
                                            const std::string& mine);

// Several texts as one, of any bytes, and back; Split returns nothing where `joined` is no such
// text.
std::string Join(const std::vector<std::string>& texts);
std::vector<std::string> Split(const std::string& joined);

}  // namespace mt::comm
