// Leases of the workers (L1): a node is READY while heartbeats come, SUSPECT after 10 s without
// one, LOST after 30 s, DEAD when an operator says so. Decides by the monotonic times that it is
// given (docs/design/control-plane.md#silence). Not thread-safe; pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace megatrain::v1 {
enum NodeState : int;
}

namespace mt::daemon {

struct LeaseChange {
  std::string node;
  megatrain::v1::NodeState from;
  megatrain::v1::NodeState to;
};

class LeaseTable {
 public:
  // A new lease, full length: at registration, and for every known node when the coordinator
  // starts.
  void Start(const std::string& node, base::MonotonicTime now);
  // A heartbeat. False where the node has no lease or has lost it, or is dead: it must register
  // again.
  bool Renew(const std::string& node, base::MonotonicTime now);
  // Until the next Start.
  void DeclareDead(const std::string& node);
  // Leases whose state changed since the last call, by node name.
  std::vector<LeaseChange> Tick(base::MonotonicTime now);
  // NODE_STATE_UNSPECIFIED: no such node. As of the last Start, Renew or Tick.
  megatrain::v1::NodeState StateOf(const std::string& node) const;

 private:
  struct Lease {
    base::MonotonicTime renewed;
    megatrain::v1::NodeState state;
    megatrain::v1::NodeState told;  // what Tick last reported
  };
  std::map<std::string, Lease> leases_;
};

}  // namespace mt::daemon
