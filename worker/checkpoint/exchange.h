// What a collective save needs of its group: every rank's text to every rank, and one verdict for
// all.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "worker/comm/process_group.h"

namespace mt::checkpoint {

// `group` nullptr: a job of one rank. Collective and blocking.
class Exchange {
 public:
  Exchange(comm::ProcessGroup* group, kernels::Stream* stream) : group_(group), stream_(stream) {}

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }

  // texts[r] = what rank r gave, on every rank.
  StatusOr<std::vector<std::string>> AllGather(const std::string& text);
  // What `root` gave; the others' texts are not looked at.
  StatusOr<std::string> Broadcast(const std::string& text, int root);
  // The first failure in rank order, with its rank named; OK where all ranks say OK.
  Status Agree(const Status& mine);

 private:
  comm::ProcessGroup* group_;
  kernels::Stream* stream_;
};

}  // namespace mt::checkpoint
