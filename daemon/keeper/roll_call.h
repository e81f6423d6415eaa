// After each start nothing is placed until every node that the store knows has registered or its
// lease is over (L1): a job that waits in the store may run, where the store is an older copy that
// nobody has declared to be restored, and only the nodes know
// (docs/design/control-plane.md#terms). Not thread-safe (the core's thread).
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace mt::daemon {

class LeaseTable;
class Ledger;

class RollCall {
 public:
  // Both outlive it.
  RollCall(Ledger* ledger, const LeaseTable* leases) : ledger_(ledger), leases_(leases) {}

  // The coordinator has started: from now on the nodes that the store knows are awaited.
  void Begin();
  // The node has registered.
  void Answered(const std::string& node) { awaited_.erase(node); }
  // Gives up those whose lease is over, and those that are not known any more.
  void Tick();
  bool IsOver() const { return awaited_.empty(); }
  // Why nothing is placed.
  static constexpr std::string_view kWhy =
      "the coordinator has just started: nothing is placed before every node has registered, or "
      "its lease is over";

 private:
  Ledger* ledger_;
  const LeaseTable* leases_;
  std::set<std::string> awaited_;
};

}  // namespace mt::daemon
