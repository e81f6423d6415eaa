// Holds what a worker knows of its cluster against what this coordinator is: a worker of another
// cluster is refused, and one that has obeyed a newer coordinator of this one supersedes this
// (docs/design/control-plane.md#terms). Nothing of the ledger's jobs, ranks and allocations is
// touched by it. Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "common/base/status.h"

namespace megatrain::v1 {
class RankReport;
class Register;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;
class Authority;
class Ledger;

class TermGuard {
 public:
  // Both outlive it. `coordinator_uid` is this start's.
  TermGuard(Ledger* ledger, Authority* authority, std::string coordinator_uid)
      : ledger_(ledger), authority_(authority), coordinator_uid_(std::move(coordinator_uid)) {}

  // OK where this worker may register. Else WRONG_CLUSTER, TERM_SUPERSEDED (this coordinator gives
  // no orders from now on), or what Authority says; a worker that is refused for the first time is
  // an event.
  Status CheckRegister(const v1::Register& hello);
  // Where a rank was refused by a fence of its own job: whether another coordinator has raised it.
  void NoteFence(const v1::RankReport& report, const std::string& node);

 private:
  Status Refused(const v1::Register& hello, Status why);
  // What this store, which was not declared to be restored, has forgotten of a worker that has
  // obeyed it: it is an older copy. Empty: nothing.
  std::string Forgotten(const v1::Register& hello);
  // Gives no orders from now on, nor after the next start.
  void Supersede(int64_t term, const std::string& why);

  Ledger* ledger_;
  Authority* authority_;
  std::string coordinator_uid_;
  std::set<std::string> told_;  // "node/worker uid/reason" of those refused
};

}  // namespace mt::daemon
