// Which installation of a machine this process runs on: what tells a machine that was booted again
// from another one. Thread-safe; blocks on small files.
#pragma once

#include <string>

namespace mt::base {

// Id of the machine's installation (/etc/machine-id) without the newline. "" where there is none or
// it is no id, and in a container, whose file belongs to its image: many have the same.
std::string MachineId();
// The id in such a file, whoever it belongs to; "" where there is none.
std::string ReadMachineId(const std::string& path);

}  // namespace mt::base
