// What all links check.
#include "worker/parallel/pipeline/link.h"

#include "common/base/check.h"

namespace mt::parallel {

void CheckLinkMembers(const comm::ProcessGroup& group, int own_index) {
  CHECK_EQ(group.size(), 2) << group.name() << " is no link";
  CHECK_EQ(group.rank(), own_index) << group.name();
}

}  // namespace mt::parallel
