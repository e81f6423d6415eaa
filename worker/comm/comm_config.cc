// The names of operations. They are labels of published metrics, so they must not change.
#include "worker/comm/comm_config.h"

namespace mt::comm {

std::string_view Name(CommOp op) {
  switch (op) {
    case CommOp::kAllReduce:
      return "all_reduce";
    case CommOp::kReduceScatter:
      return "reduce_scatter";
    case CommOp::kAllGather:
      return "all_gather";
    case CommOp::kBroadcast:
      return "broadcast";
    case CommOp::kAllToAll:
      return "all_to_all";
    case CommOp::kSend:
      return "send";
    case CommOp::kRecv:
      return "recv";
    case CommOp::kBarrier:
      return "barrier";
  }
  return "?";
}

}  // namespace mt::comm
