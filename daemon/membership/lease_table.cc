// A state is derived from the age of the last renewal when Tick runs; LOST and DEAD are kept until
// the next Start.
#include "daemon/membership/lease_table.h"

#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

namespace v1 = megatrain::v1;

namespace {

bool IsOver(v1::NodeState state) { return state == v1::NODE_LOST || state == v1::NODE_DEAD; }

}  // namespace

void LeaseTable::Start(const std::string& node, base::MonotonicTime now) {
  const auto [it, is_new] = leases_.try_emplace(node, Lease{now, v1::NODE_READY, v1::NODE_READY});
  if (is_new) return;
  it->second.renewed = now;
  it->second.state = v1::NODE_READY;
}

bool LeaseTable::Renew(const std::string& node, base::MonotonicTime now) {
  const auto it = leases_.find(node);
  if (it == leases_.end() || IsOver(it->second.state)) return false;
  it->second.renewed = now;
  it->second.state = v1::NODE_READY;
  return true;
}

void LeaseTable::DeclareDead(const std::string& node) {
  Lease& lease = leases_[node];
  lease.state = v1::NODE_DEAD;
  lease.told = v1::NODE_DEAD;  // the operator who declares it needs no report
}

std::vector<LeaseChange> LeaseTable::Tick(base::MonotonicTime now) {
  std::vector<LeaseChange> changes;
  for (auto& [node, lease] : leases_) {
    const auto silent = now - lease.renewed;
    if (!IsOver(lease.state)) {
      lease.state = silent >= limits_.lost_after      ? v1::NODE_LOST
                    : silent >= limits_.suspect_after ? v1::NODE_SUSPECT
                                                      : v1::NODE_READY;
    }
    if (lease.state == lease.told) continue;
    changes.push_back({node, lease.told, lease.state});
    lease.told = lease.state;
  }
  return changes;
}

v1::NodeState LeaseTable::StateOf(const std::string& node) const {
  const auto it = leases_.find(node);
  return it == leases_.end() ? v1::NODE_STATE_UNSPECIFIED : it->second.state;
}

}  // namespace mt::daemon
