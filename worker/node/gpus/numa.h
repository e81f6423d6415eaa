// Cores of this node as the kernel names them ("0-31,64-95"): those of a NUMA node that this
// process may use. Pure but for sysfs and the own affinity.
#pragma once

#include <sched.h>
#include <string>
#include <string_view>

namespace mt::node {

// Empty where the text is no list of cores.
cpu_set_t ParseCpuList(std::string_view text);
std::string FormatCpuList(const cpu_set_t& cpus);

// The cores of a NUMA node that are also in `usable`; "" where the node is not known (below 0) or
// none of its cores is usable.
std::string CpusOfNode(int numa_node, const cpu_set_t& usable,
                       const std::string& sysfs_root = "/sys");
// Of this process; all zero where that is not told.
cpu_set_t OwnCpus();

}  // namespace mt::node
