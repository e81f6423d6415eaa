// By the run's id, and before ids by name and directory.
#include "daemon/api/run_sources.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "common/rpc/reason.h"
#include "daemon/ledger/run_jobs.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

// Jobs from before runs had ids that `first` went on from, oldest first.
std::vector<const v1::Job*> JobsBefore(Ledger* ledger, const v1::Job& first) {
  std::vector<const v1::Job*> earlier;
  if (first.resumed_from_step() == 0 || first.checkpoint_path().empty()) return earlier;
  for (const v1::StoredJob* stored : ledger->Jobs()) {
    const v1::Job& job = stored->job();
    if (job.name() == first.name() && job.namespace_() == first.namespace_() &&
        job.checkpoint_path() == first.checkpoint_path() && job.run().id().empty() &&
        job.created_us() < first.created_us()) {
      earlier.push_back(&job);
    }
  }
  std::ranges::stable_sort(earlier, std::greater<>(), &v1::Job::created_us);
  const auto cold = std::ranges::find(earlier, 0, &v1::Job::resumed_from_step);
  if (cold != earlier.end()) earlier.erase(cold + 1, earlier.end());
  std::ranges::reverse(earlier);
  return earlier;
}

// Whether the run may have begun before runs had ids: nothing is known of how it began.
bool MayBeOlder(const v1::Run& run) {
  return run.parent().empty() && run.beginning().empty() && run.from_digest().empty() &&
         run.restart().empty();
}

}  // namespace

StatusOr<RunSources> FindRunSources(Ledger* ledger, const v1::StoredJob& stored, int attempt) {
  const v1::Job& job = stored.job();
  RunSources out{.run = job.run().id(), .job_uid = job.uid(), .attempt = attempt};
  std::vector<const v1::StoredJob*> jobs = JobsOfRun(ledger, out.run);
  if (jobs.empty()) jobs.push_back(&stored);
  if (MayBeOlder(job.run())) {
    for (const v1::Job* before : JobsBefore(ledger, jobs.front()->job())) {
      out.jobs.push_back({.job_uid = before->uid(),
                          .told = false,
                          .resumed_from_step = before->resumed_from_step()});
    }
  }
  for (const v1::StoredJob* one : jobs) {
    out.jobs.push_back({.job_uid = one->job().uid(),
                        .told = HasTrained(*one, out.run),
                        .resumed_from_step = one->job().resumed_from_step()});
  }
  const int known =
      out.run.empty() ? static_cast<int>(out.jobs.size()) : NextAttempt(ledger, out.run) - 1;
  if (attempt > known) {
    return rpc::WithReason(base::NotFound("job '{}' has {} attempt{}, none of number {}",
                                          job.name(), known, known == 1 ? "" : "s", attempt),
                           rpc::reason::kInvalidRequest);
  }
  return out;
}

}  // namespace mt::daemon
