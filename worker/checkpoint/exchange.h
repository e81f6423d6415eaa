// The communication of a collective save: texts from every rank to every rank, and agreement on one
// status, so that all ranks take the same branch.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "worker/comm/process_group.h"

namespace mt::checkpoint {

// `group` nullptr: a job of one rank; then nothing is communicated. Every method is collective and
// blocking; errors are the group's.
class Exchange {
 public:
  Exchange(comm::ProcessGroup* group, kernels::Stream* stream) : group_(group), stream_(stream) {}

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }

  // Returns every rank's text, indexed by rank, on every rank. Texts may differ in length.
  StatusOr<std::vector<std::string>> AllGather(const std::string& text);
  // Returns the text of `root` on every rank; the other ranks' arguments are ignored.
  StatusOr<std::string> Broadcast(const std::string& text, int root);
  // Returns the same status on all ranks: OK if all ranks pass OK, else the first failure in rank
  // order, prefixed with its rank.
  Status Agree(const Status& mine);

 private:
  comm::ProcessGroup* group_;
  kernels::Stream* stream_;
};

}  // namespace mt::checkpoint
