// Leases of the workers (L1): a node is READY while heartbeats arrive, SUSPECT some time after the
// last one (10 s), LOST later (30 s), and DEAD when an operator declares it. Decides by the
// monotonic times that it is given (docs/design/control-plane.md#silence). Not thread-safe; pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "daemon/membership/silence_limits.h"

namespace megatrain::v1 {
enum NodeState : int;
}

namespace mt::daemon {

// A change of a node's state.
struct LeaseChange {
  std::string node;
  megatrain::v1::NodeState from;
  megatrain::v1::NodeState to;
};

// The leases of all known nodes.
class LeaseTable {
 public:
  explicit LeaseTable(const SilenceLimits& limits = {}) : limits_(limits) {}

  const SilenceLimits& limits() const { return limits_; }
  // Starts a lease of full length: at registration, and for every known node when the coordinator
  // starts. The node is READY.
  void Start(const std::string& node, base::MonotonicTime now);
  // Renews a lease upon a heartbeat. Returns false where the node has no lease, lost it, or is
  // dead: it has to register again.
  bool Renew(const std::string& node, base::MonotonicTime now);
  // Makes the node DEAD until the next Start. Tick does not report this change.
  void DeclareDead(const std::string& node);
  // The node is not known any more.
  void Forget(const std::string& node) { leases_.erase(node); }
  // Returns the leases whose state changed since the last call, by node name.
  std::vector<LeaseChange> Tick(base::MonotonicTime now);
  // The state as of the last Start, Renew, DeclareDead or Tick; NODE_STATE_UNSPECIFIED for an
  // unknown node.
  megatrain::v1::NodeState StateOf(const std::string& node) const;

 private:
  struct Lease {
    base::MonotonicTime renewed;
    megatrain::v1::NodeState state;
    megatrain::v1::NodeState told;  // what Tick last reported
  };
  std::map<std::string, Lease> leases_;
  const SilenceLimits limits_;
};

}  // namespace mt::daemon
