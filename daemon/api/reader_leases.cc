// A look at every living job per tick: nothing has to be told to this table.
#include "daemon/api/reader_leases.h"

#include <utility>

#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/spec/job_kind.h"
#include "daemon/api/job_ref.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/job_keeper.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

Status ReaderLeases::Hold(const v1::HoldOutputRequest& request, v1::HoldOutputResponse* response) {
  ASSIGN_OR_RETURN(const v1::StoredJob* const stored, FindJob(parts_.ledger, request.job()));
  const v1::Job& job = stored->job();
  if (const spec::JobKind& kind = spec::KindOf(job.spec()); !kind.reads) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is of kind {}, which no client holds: it goes on by "
                                 "itself",
                                 job.name(), kind.name),
        rpc::reason::kWrongKind);
  }
  response->set_state(job.state());
  response->set_held(stored->held());
  if (stored->held() && !IsFinal(job.state())) called_[job.uid()] = parts_.clock->Now();
  return OkStatus();
}

void ReaderLeases::Tick() {
  const base::MonotonicTime now = parts_.clock->Now();
  std::map<std::string, base::MonotonicTime, std::less<>> living;
  for (v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    if (!stored->held() || !JobStateMachine::Allows(PositionOf(job), JobEvent::kCancel)) continue;
    const auto known = called_.find(job.uid());
    const base::MonotonicTime called = known == called_.end() ? now : known->second;
    living.emplace(job.uid(), called);
    if (now - called <= control::kOutputHoldLimit) continue;
    const Order order{.actor = "coordinator",
                      .reason = fmt::format("its client was not heard for {} s",
                                            control::kOutputHoldLimit.count()),
                      .request_id = ""};
    // One that is about to end by itself was left out above.
    (void)parts_.keeper->verbs().Cancel(*stored, /*with_save=*/false, order);
  }
  called_ = std::move(living);
}

}  // namespace mt::daemon
