// The validation that all factories share.
#include "worker/comm/group_factory.h"

#include <algorithm>
#include <vector>

namespace mt::comm {

Status CheckSpec(const GroupSpec& spec) {
  if (spec.name.empty()) return base::InvalidArgument("a process group needs a name");
  if (spec.my_index < 0 || spec.my_index >= static_cast<int64_t>(spec.members.size())) {
    return base::InvalidArgument("group {}: my index {} of {} members", spec.name, spec.my_index,
                                 spec.members.size());
  }
  std::vector<int> sorted = spec.members;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return base::InvalidArgument("group {}: world rank {} is in it twice", spec.name, *twice);
  }
  return OkStatus();
}

}  // namespace mt::comm
