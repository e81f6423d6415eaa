// Groups over NCCL without a GPU: the stand-in (nccl_stand_in/), loaded as NCCL is, under ranks
// that are threads with a QueueDevice each.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/core/device.h"
#include "tests/worker/comm/queue_device.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/nccl/nccl_library.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

// Of the build tree: the stand-in, and a library that has few of its functions.
std::string StandInFolder();
std::string StandInPath();
std::string LackingPath();

// The stand-in, loaded into this process.
const NcclLibrary* StandIn();

// Sets the stand-in's knobs (nccl_stand_in/knobs.h) for the communicators that are made while it
// lives.
class WithKnobs {
 public:
  explicit WithKnobs(const std::string& knobs);
  ~WithKnobs();
  WithKnobs(const WithKnobs&) = delete;
  WithKnobs& operator=(const WithKnobs&) = delete;
};

// What a rank's body is given.
struct NcclRank {
  ProcessGroup& group;
  QueueDevice& device;
  kernels::Stream& stream;
};

// Makes the group `name` of ranks whose world ranks are 10, 11, ... and calls body on one thread
// per rank; a rank's group is destroyed when its body returns, then its stream. `checked`: over
// MakeCheckedFactory.
void RunNccl(const std::string& name, int num_ranks, const CommConfig& config,
             const std::function<void(NcclRank&)>& body, bool checked = false);

}  // namespace mt::comm
