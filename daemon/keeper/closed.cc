// What the job's row, the trace of a deleted one, and the allocation's row say.
#include "daemon/keeper/closed.h"

#include <algorithm>

#include "common/control/epoch.h"
#include "daemon/jobs/job_states.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

bool IsBeforeRestore(Ledger* ledger, int64_t epoch) {
  return control::TermOfEpoch(epoch) < ledger->Cluster().restored_term();
}

bool IsClosed(Ledger* ledger, const AllocationKey& key) {
  const v1::StoredAllocation* allocation = ledger->FindAllocation(key);
  if (allocation != nullptr && allocation->state() == v1::FREEING) return true;
  if (const v1::StoredJob* trace = ledger->FindDeleted(key.job_uid); trace != nullptr) {
    // Traces of old stores do not say their last epoch, which was of term 0.
    return trace->job().epoch() == 0 ? control::TermOfEpoch(key.epoch) == 0
                                     : key.epoch <= trace->job().epoch();
  }
  const v1::StoredJob* stored = ledger->FindJob(key.job_uid);
  if (stored == nullptr) return false;
  const v1::Job& job = stored->job();
  if (key.epoch != job.epoch()) return key.epoch < job.epoch();
  return stored->killing() || stored->closed_epoch() == key.epoch || IsFinal(job.state());
}

}  // namespace mt::daemon
