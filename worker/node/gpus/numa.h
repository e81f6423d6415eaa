// The cores of a NUMA node that this process may use, in the kernel's notation ("0-31,64-95"). Pure
// but for reading sysfs and the affinity of this process.
#pragma once

#include <sched.h>
#include <string>
#include <string_view>

namespace mt::node {

// Parses a list of cores; the empty set if the text is not one.
cpu_set_t ParseCpuList(std::string_view text);
std::string FormatCpuList(const cpu_set_t& cpus);

// The cores of a NUMA node that are also in `usable`; "" if the node is unknown (below 0) or none
// of its cores is usable.
std::string CpusOfNode(int numa_node, const cpu_set_t& usable,
                       const std::string& sysfs_root = "/sys");
// The affinity of this process; the empty set if it cannot be read.
cpu_set_t OwnCpus();

}  // namespace mt::node
