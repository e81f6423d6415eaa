// Looks jobs up, and helps with names that are nearly right.
#include "daemon/api/job_ref.h"

#include <vector>

#include "common/rpc/reason.h"
#include "common/spec/validate.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

std::string_view NamespaceOf(const v1::JobRef& ref) {
  return ref.namespace_().empty() ? std::string_view("default")
                                  : std::string_view(ref.namespace_());
}

Status UnknownJob(Ledger* ledger, std::string_view job_namespace, std::string_view name) {
  std::vector<std::string> names;
  for (const v1::StoredJob* job : ledger->Jobs()) {
    if (job->job().namespace_() == job_namespace) names.push_back(job->job().name());
  }
  const std::string nearest = spec::Nearest(name, names);
  return rpc::WithReason(
      base::NotFound("no job '{}' in namespace {}{}", name, job_namespace,
                     nearest.empty() ? std::string(" (mtctl get jobs lists them)")
                                     : fmt::format("; did you mean '{}'?", nearest)),
      reason::kUnknownJob);
}

// Whether its ranks were ready once. Those of earlier versions told no run, but a directory or
// steps.
bool HasRun(const v1::Job& job) {
  return !job.run().id().empty() || !job.checkpoint_path().empty() || job.has_last_step();
}

// The newest job of the name of `job` that has a run; `job` where there is none.
v1::StoredJob* NewestWithRun(Ledger* ledger, v1::StoredJob* job) {
  if (HasRun(job->job())) return job;
  v1::StoredJob* newest = nullptr;
  for (v1::StoredJob* other : ledger->Jobs()) {
    const v1::Job& one = other->job();
    const bool its = one.name() == job->job().name() &&
                     one.namespace_() == job->job().namespace_() && HasRun(one);
    if (its && (newest == nullptr || one.created_us() > newest->job().created_us())) newest = other;
  }
  return newest == nullptr ? job : newest;
}

}  // namespace

StatusOr<v1::StoredJob*> FindJob(Ledger* ledger, const v1::JobRef& ref) {
  if (!ref.uid().empty()) {
    v1::StoredJob* job = ledger->FindJob(ref.uid());
    if (job != nullptr) return job;
    return rpc::WithReason(base::NotFound("no job with uid {}", ref.uid()), reason::kUnknownJob);
  }
  if (ref.name().empty()) {
    return rpc::WithReason(base::InvalidArgument("name the job, by name or uid"),
                           reason::kInvalidRequest);
  }
  v1::StoredJob* job = ledger->FindJobByName(NamespaceOf(ref), ref.name());
  if (job != nullptr) return ref.with_run() ? NewestWithRun(ledger, job) : job;
  return UnknownJob(ledger, NamespaceOf(ref), ref.name());
}

}  // namespace mt::daemon
