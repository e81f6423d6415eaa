// Jobs of kinds generate and eval that were submitted with `held`: each lives while its client
// calls (L11), so that what nobody reads any more takes no slot. When a client called last is in
// memory alone: after a start of the coordinator every such job has the whole limit again. Not
// thread-safe (the core's thread).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class HoldOutputRequest;
class HoldOutputResponse;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobKeeper;

class ReaderLeases {
 public:
  struct Parts {
    Ledger* ledger;
    JobKeeper* keeper;
    const base::Clock* clock;  // the coordinator's own time: while it stands still, no lease runs
  };
  // All parts outlive it.
  explicit ReaderLeases(const Parts& parts) : parts_(parts) {}

  // The client of the job has called. FailedPrecondition (WRONG_KIND) for a job that reads no
  // checkpoint; of one that is not held, or has ended, the answer says so.
  Status Hold(const v1::HoldOutputRequest& request, v1::HoldOutputResponse* response);
  // Cancels jobs whose client has not called for L11. Only while orders are given.
  void Tick();

 private:
  Parts parts_;
  // The last call of each held job that lives; its first look at it counts as one.
  std::map<std::string, base::MonotonicTime, std::less<>> called_;
};

}  // namespace mt::daemon
