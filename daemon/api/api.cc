#include "daemon/api/api.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/ids.h"
#include "common/rpc/control_numbers.h"
#include "common/rpc/reason.h"
#include "common/spec/print.h"
#include "common/spec/validate.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

constexpr size_t kMaxRequestIdBytes = 128;
constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1'000;

std::string_view NamespaceOf(const v1::JobRef& ref) {
  return ref.namespace_().empty() ? std::string_view("default")
                                  : std::string_view(ref.namespace_());
}

}  // namespace

Status Api::CheckRequestId(const std::string& id) {
  if (!id.empty() && id.size() <= kMaxRequestIdBytes) return OkStatus();
  return rpc::WithReason(
      base::InvalidArgument("request_id must have 1 to {} bytes (a UUID)", kMaxRequestIdBytes),
      reason::kInvalidRequest);
}

void Api::SetDeadline(v1::Job* job) {
  const v1::Resilience& resilience = job->spec().resilience();
  job->set_deadline_us(resilience.has_deadline() ? job->created_us() + resilience.deadline() * 1'000
                                                 : 0);
}

void Api::Validate(const v1::ValidateRequest& request, v1::ValidateResponse* response) {
  v1::JobSpec job = request.spec();
  const spec::Faults faults = spec::CompleteJob({}, &job);
  for (const spec::Fault& fault : faults) {
    v1::FieldFault* out = response->add_faults();
    out->set_path(fault.path);
    out->set_message(fault.message);
  }
  if (faults.empty()) *response->mutable_spec() = std::move(job);
}

Status Api::Repeated(const v1::StoredRequest& before, std::string_view kind,
                     std::string_view digest) const {
  if (before.kind() == kind && before.digest() == digest) return OkStatus();
  return rpc::WithReason(
      base::InvalidArgument(
          "request_id '{}' was used for another {}; a new request needs a new one",
          before.request_id(), before.kind()),
      reason::kRequestIdReused);
}

void Api::RememberRequest(std::string_view id, std::string_view kind, std::string_view target,
                          std::string_view digest) {
  auto request = std::make_unique<v1::StoredRequest>();
  request->set_request_id(std::string(id));
  request->set_kind(std::string(kind));
  request->set_target(std::string(target));
  request->set_digest(std::string(digest));
  parts_.ledger->AddRequest(std::move(request));
}

Status Api::Submit(const v1::SubmitRequest& request, std::string_view actor,
                   v1::SubmitResponse* response) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  if (static_cast<int64_t>(request.spec().ByteSizeLong()) > rpc::kMaxSpecBytes) {
    return rpc::WithReason(
        base::InvalidArgument("the job has more than {} bytes", rpc::kMaxSpecBytes),
        reason::kInvalidSpec);
  }
  v1::JobSpec spec = request.spec();
  const spec::Faults faults = spec::CompleteJob({}, &spec);
  if (!faults.empty()) return rpc::WithReason(spec::ToStatus(faults), reason::kInvalidSpec);
  const std::string digest = spec::Digest(spec);
  const bool is_new = parts_.ledger->FindRequest(request.request_id()) == nullptr;
  const spec::Faults now = is_new ? parts_.placer->FaultsNow(spec) : spec::Faults();
  if (!now.empty()) return rpc::WithReason(spec::ToStatus(now), reason::kInvalidSpec);
  if (const v1::StoredRequest* before = parts_.ledger->FindRequest(request.request_id());
      before != nullptr) {
    RETURN_IF_ERROR(Repeated(*before, "submit", digest));
    const v1::StoredJob* job = parts_.ledger->FindJob(before->target());
    if (job == nullptr) {
      return rpc::WithReason(base::NotFound("the job of request {} (uid {}) was deleted",
                                            request.request_id(), before->target()),
                             reason::kUnknownJob);
    }
    *response->mutable_job() = job->job();
    response->set_existed(true);
    return OkStatus();
  }
  const v1::StoredJob* same_name = parts_.ledger->FindJobByName(spec.namespace_(), spec.name());
  if (same_name != nullptr && !IsFinal(same_name->job().state())) {
    return rpc::WithReason(base::Error(absl::StatusCode::kAlreadyExists,
                                       "job '{}' is {} already (uid {}): cancel it first (mtctl "
                                       "cancel {}), or choose another name",
                                       spec.name(), v1::JobState_Name(same_name->job().state()),
                                       same_name->job().uid(), spec.name()),
                           reason::kNameInUse);
  }
  auto stored = std::make_unique<v1::StoredJob>();
  v1::Job* job = stored->mutable_job();
  job->set_uid(base::NewUid());
  job->set_name(spec.name());
  job->set_namespace_(spec.namespace_());
  job->set_state(v1::QUEUED);
  job->set_goal(v1::GOAL_RUN);
  job->set_failed_rank(-1);
  job->set_created_us(parts_.ledger->NextCreatedMicros());
  job->set_slots(static_cast<int32_t>(spec.placement().slots()));
  *job->mutable_spec() = std::move(spec);
  SetDeadline(job);
  RememberRequest(request.request_id(), "submit", job->uid(), digest);
  const v1::StoredJob* kept = parts_.ledger->AddJob(std::move(stored));
  parts_.ledger->AddEvent({.type = "Submitted",
                           .message = kept->job().name(),
                           .job_uid = kept->job().uid(),
                           .actor = std::string(actor),
                           .to = v1::QUEUED});
  parts_.placer->Run();
  *response->mutable_job() = kept->job();
  return OkStatus();
}

Status Api::UnknownJob(std::string_view job_namespace, std::string_view name) {
  std::vector<std::string> names;
  for (const v1::StoredJob* job : parts_.ledger->Jobs()) {
    if (job->job().namespace_() == job_namespace) names.push_back(job->job().name());
  }
  const std::string nearest = spec::Nearest(name, names);
  return rpc::WithReason(
      base::NotFound("no job '{}' in namespace {}{}", name, job_namespace,
                     nearest.empty() ? std::string(" (mtctl get jobs lists them)")
                                     : fmt::format("; did you mean '{}'?", nearest)),
      reason::kUnknownJob);
}

StatusOr<v1::StoredJob*> Api::Find(const v1::JobRef& ref) {
  if (!ref.uid().empty()) {
    v1::StoredJob* job = parts_.ledger->FindJob(ref.uid());
    if (job != nullptr) return job;
    return rpc::WithReason(base::NotFound("no job with uid {}", ref.uid()), reason::kUnknownJob);
  }
  if (ref.name().empty()) {
    return rpc::WithReason(base::InvalidArgument("name the job, by name or uid"),
                           reason::kInvalidRequest);
  }
  v1::StoredJob* job = parts_.ledger->FindJobByName(NamespaceOf(ref), ref.name());
  if (job != nullptr) return job;
  return UnknownJob(NamespaceOf(ref), ref.name());
}

Status Api::GetJob(const v1::GetJobRequest& request, v1::Job* response) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, Find(request.job()));
  *response = job->job();
  return OkStatus();
}

Status Api::ListJobs(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
  // A page starts below the last job of the page before: "<created_us>:<uid>".
  std::pair<int64_t, std::string> below{std::numeric_limits<int64_t>::max(), "~"};
  if (const std::string& token = request.page_token(); !token.empty()) {
    const auto [end, error] =
        std::from_chars(token.data(), token.data() + token.size(), below.first);
    if (error != std::errc() || end == token.data() + token.size() || *end != ':') {
      return rpc::WithReason(base::InvalidArgument("'{}' is no page token of this list", token),
                             reason::kInvalidRequest);
    }
    below.second.assign(end + 1, token.data() + token.size());
  }
  std::vector<v1::StoredJob*> jobs =
      request.live_only() ? parts_.ledger->LiveJobs() : parts_.ledger->Jobs();
  std::erase_if(jobs, [&](const v1::StoredJob* stored) {
    const v1::Job& job = stored->job();
    return (!request.namespace_().empty() && job.namespace_() != request.namespace_()) ||
           std::make_pair(job.created_us(), job.uid()) >= below;
  });
  std::ranges::sort(jobs, [](const v1::StoredJob* a, const v1::StoredJob* b) {
    return std::make_pair(a->job().created_us(), a->job().uid()) >
           std::make_pair(b->job().created_us(), b->job().uid());
  });
  const auto page = static_cast<size_t>(
      request.page_size() <= 0 ? kDefaultPage : std::min(request.page_size(), kMaxPage));
  for (size_t i = 0; i < std::min(page, jobs.size()); ++i) *response->add_jobs() = jobs[i]->job();
  if (jobs.size() > page) {
    const v1::Job& last = jobs[page - 1]->job();
    response->set_next_page_token(fmt::format("{}:{}", last.created_us(), last.uid()));
  }
  return OkStatus();
}

}  // namespace mt::daemon
