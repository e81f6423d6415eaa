// Who holds the slots that a job would need: asked before it is submitted, so that a job that would
// wait need not be. Changes nothing. Not thread-safe (the core's thread).
#pragma once

#include "common/base/status.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class WhoHoldsRequest;
class WhoHoldsResponse;
}  // namespace megatrain::v1

namespace mt::daemon {

class Placer;

class SlotHolders {
 public:
  // Both outlive it.
  SlotHolders(Ledger* ledger, Placer* placer) : ledger_(ledger), placer_(placer) {}

  // Whether the job would be placed at once, why not, the slots of each kind that it may use, and
  // every holder of slots. InvalidArgument (INVALID_SPEC) for a faulty job.
  Status WhoHolds(const v1::WhoHoldsRequest& request, v1::WhoHoldsResponse* response);

 private:
  void AddHolders(v1::WhoHoldsResponse* response);

  Ledger* ledger_;
  Placer* placer_;
};

}  // namespace mt::daemon
