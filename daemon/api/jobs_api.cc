// Submission, reading, and updates of a job's spec. Every request that changes something is
// remembered under its id, with what was asked, before it is answered.
#include "daemon/api/jobs_api.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <absl/strings/escaping.h>

#include "common/base/ids.h"
#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/spec/job_kind.h"
#include "common/spec/print.h"
#include "common/spec/update.h"
#include "common/spec/validate.h"
#include "daemon/api/job_directory.h"
#include "daemon/api/job_ref.h"
#include "daemon/authority/authority.h"
#include "daemon/feeds/feeds.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/job_bases.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1'000;
constexpr int64_t kPerJobBytes = 8;                                        // its tag and length
constexpr int64_t kMaxPageBytes = control::kMaxMessageBytes - (64 << 10);  // A2, and a token

// What tells a repeated submission from another one. Which directory is chosen is no part of it: an
// earlier version has called it otherwise.
std::string ContentOf(const v1::SubmitRequest& request, v1::JobSpec completed) {
  if (!request.spec().checkpoint().has_directory() &&
      completed.checkpoint().directory() != "none") {
    completed.mutable_checkpoint()->set_directory(completed.name());
  }
  return spec::Digest(completed) + (request.restart() ? "/restart" : "") +
         (request.held() ? "/held" : "");
}

// A run that keeps nothing has nothing to begin anew.
Status CheckRestart(const v1::SubmitRequest& request, const v1::JobSpec& spec) {
  if (!request.restart() || spec.checkpoint().directory() != "none") return OkStatus();
  return rpc::WithReason(
      base::FailedPrecondition("--restart: job '{}' saves no checkpoints (checkpoint.directory is "
                               "none), so that it begins a run anyhow",
                               spec.name()),
      reason::kNoCheckpoints);
}

// What trains or measures is nobody's to hold.
Status CheckHeld(const v1::SubmitRequest& request, const v1::JobSpec& spec) {
  const spec::JobKind& kind = spec::KindOf(spec);
  if (!request.held() || kind.reads) return OkStatus();
  return rpc::WithReason(
      base::FailedPrecondition("held: job '{}' is of kind {}, and goes on without its client",
                               spec.name(), kind.name),
      reason::kWrongKind);
}

}  // namespace

void JobsApi::SetDeadline(v1::Job* job) {
  const v1::Resilience& resilience = job->spec().resilience();
  job->set_deadline_us(resilience.has_deadline() ? job->created_us() + resilience.deadline() * 1'000
                                                 : 0);
}

void JobsApi::Validate(const v1::ValidateRequest& request, v1::ValidateResponse* response) {
  v1::JobSpec job = request.spec();
  const spec::Faults faults = spec::CompleteJob({.of_service = true}, &job);
  for (const spec::Fault& fault : faults) {
    v1::FieldFault* out = response->add_faults();
    out->set_path(fault.path);
    out->set_message(fault.message);
  }
  if (faults.empty()) *response->mutable_spec() = std::move(job);
}

Status JobsApi::AnswerAgain(const v1::SubmitRequest& request, const v1::StoredRequest& before,
                            v1::SubmitResponse* response) {
  const v1::StoredJob* job = parts_.ledger->FindJob(before.target());
  if (job == nullptr) {
    return rpc::WithReason(base::NotFound("the job of request {} (uid {}) was deleted",
                                          request.request_id(), before.target()),
                           reason::kUnknownJob);
  }
  *response->mutable_job() = job->job();
  response->set_existed(true);
  return OkStatus();
}

Status JobsApi::CheckNameIsFree(const v1::JobSpec& spec) {
  const v1::StoredJob* same_name = parts_.ledger->FindJobByName(spec.namespace_(), spec.name());
  if (same_name != nullptr && !IsFinal(same_name->job().state())) {
    return rpc::WithReason(base::Error(absl::StatusCode::kAlreadyExists,
                                       "job '{}' is {} already (uid {}): cancel it first (mtctl "
                                       "cancel {}), or choose another name",
                                       spec.name(), v1::JobState_Name(same_name->job().state()),
                                       same_name->job().uid(), spec.name()),
                           reason::kNameInUse);
  }
  return OkStatus();
}

Status JobsApi::Submit(const v1::SubmitRequest& request, std::string_view actor,
                       v1::SubmitResponse* response) {
  RETURN_IF_ERROR(parts_.authority->CheckOrders());
  RETURN_IF_ERROR(RequestBook::CheckId(request.request_id()));
  if (static_cast<int64_t>(request.spec().ByteSizeLong()) > control::kMaxSpecBytes) {
    return rpc::WithReason(
        base::InvalidArgument("the job has more than {} bytes", control::kMaxSpecBytes),
        reason::kInvalidSpec);
  }
  v1::JobSpec spec = request.spec();
  const spec::Faults faults = spec::CompleteJob({.of_service = true}, &spec);
  if (!faults.empty()) return rpc::WithReason(spec::ToStatus(faults), reason::kInvalidSpec);
  const bool names_directory = request.spec().checkpoint().has_directory();
  const std::string content = ContentOf(request, spec);
  const bool is_new = parts_.requests->Find(request.request_id()) == nullptr;
  const spec::Faults now = is_new ? parts_.placer->FaultsNow(spec) : spec::Faults();
  if (!now.empty()) return rpc::WithReason(spec::ToStatus(now), reason::kInvalidSpec);
  if (const v1::StoredRequest* before = parts_.requests->Find(request.request_id());
      before != nullptr) {
    RETURN_IF_ERROR(parts_.requests->CheckRepeated(*before, "submit", content));
    return AnswerAgain(request, *before, response);
  }
  RETURN_IF_ERROR(CheckRestart(request, spec));
  RETURN_IF_ERROR(CheckHeld(request, spec));
  RETURN_IF_ERROR(CheckNameIsFree(spec));
  const spec::Faults directory = names_directory ? CheckGivenDirectory(*parts_.ledger, spec)
                                                 : ChooseDirectory(*parts_.ledger, &spec);
  if (!directory.empty()) return rpc::WithReason(spec::ToStatus(directory), reason::kInvalidSpec);
  auto stored = std::make_unique<v1::StoredJob>();
  stored->set_directory_given(names_directory);
  stored->set_held(request.held());
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
  parts_.requests->Remember(
      {.id = request.request_id(), .kind = "submit", .target = job->uid(), .content = content});
  if (request.restart()) MakeRestart(stored.get());
  const v1::StoredJob* kept = parts_.ledger->AddJob(std::move(stored));
  parts_.ledger->AddEvent(
      {.type = "Submitted",
       .message = kept->job().name() + (request.restart() ? ": begins another run" : ""),
       .job_uid = kept->job().uid(),
       .actor = std::string(actor),
       .to = v1::QUEUED});
  parts_.placer->Run();
  *response->mutable_job() = kept->job();
  return OkStatus();
}

Status JobsApi::Get(const v1::GetJobRequest& request, v1::Job* response) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(parts_.ledger, request.job()));
  *response = job->job();
  parts_.feeds->jobs().FillActivity(response);
  return OkStatus();
}

Status JobsApi::List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
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
  FillPage(jobs, page, response);
  return OkStatus();
}

void JobsApi::FillPage(const std::vector<v1::StoredJob*>& jobs, size_t most,
                       v1::ListJobsResponse* response) const {
  int64_t bytes = 0;
  size_t count = 0;
  for (; count < std::min(most, jobs.size()); ++count) {
    v1::Job* const listed = response->add_jobs();
    *listed = jobs[count]->job();
    parts_.feeds->jobs().FillActivity(listed);
    bytes += static_cast<int64_t>(listed->ByteSizeLong()) + kPerJobBytes;
    if (count == 0 || bytes <= kMaxPageBytes) continue;
    response->mutable_jobs()->RemoveLast();
    break;
  }
  if (jobs.size() <= count) return;
  const v1::Job& last = jobs[count - 1]->job();
  response->set_next_page_token(fmt::format("{}:{}", last.created_us(), last.uid()));
}

Status JobsApi::ListCheckpoints(const v1::ListCheckpointsRequest& request,
                                v1::ListCheckpointsResponse* response) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(parts_.ledger, request.job()));
  response->set_directory(job->job().checkpoint_path());
  *response->mutable_checkpoints() = job->job().checkpoints();
  return OkStatus();
}

Status JobsApi::CheckUpdate(const v1::UpdateJobRequest& request, const v1::Job& job) const {
  if (IsFinal(job.state())) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is {}: update is not possible there (possible: {})",
                                 job.name(), v1::JobState_Name(job.state()),
                                 AllowedVerbs({job.state(), job.stopping_to()}, job.goal())),
        reason::kWrongState);
  }
  if (request.etag().empty() || request.etag() == job.etag()) return OkStatus();
  return rpc::WithReason(base::Error(absl::StatusCode::kAborted,
                                     "job '{}' has changed since (etag {}, not {}); read it again",
                                     job.name(), job.etag(), request.etag()),
                         reason::kEtagMismatch);
}

Status JobsApi::Update(const v1::UpdateJobRequest& request, std::string_view actor,
                       v1::Job* response) {
  RETURN_IF_ERROR(parts_.authority->CheckOrders());
  // Setting a value twice is setting it once: the id may be left out.
  if (!request.request_id().empty()) RETURN_IF_ERROR(RequestBook::CheckId(request.request_id()));
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  v1::UpdateJobRequest content = request;
  content.clear_request_id();
  content.clear_changes();  // has labels, whose order in bytes is any
  const std::string asked = fmt::format("{}/{}", spec::Digest(request.changes()),
                                        absl::BytesToHexString(content.SerializeAsString()));
  if (const v1::StoredRequest* before = parts_.requests->Find(request.request_id());
      before != nullptr && !request.request_id().empty()) {
    RETURN_IF_ERROR(parts_.requests->CheckRepeated(*before, "update", asked));
    v1::GetJobRequest get;
    get.mutable_job()->set_uid(before->target());
    return Get(get, response);
  }
  ASSIGN_OR_RETURN(v1::StoredJob* const stored, FindJob(parts_.ledger, request.job()));
  v1::Job* job = stored->mutable_job();
  RETURN_IF_ERROR(CheckUpdate(request, *job));
  std::vector<spec::FieldChange> changes;
  const spec::Update update{
      .changes = request.changes(),
      .clear = {request.clear().begin(), request.clear().end()},
      .remove_labels = {request.remove_labels().begin(), request.remove_labels().end()}};
  const spec::Faults faults = spec::ApplyUpdate({}, update, job->mutable_spec(), &changes);
  if (!faults.empty()) return rpc::WithReason(spec::ToStatus(faults), reason::kInvalidSpec);
  if (!request.request_id().empty())
    parts_.requests->Remember(
        {.id = request.request_id(), .kind = "update", .target = job->uid(), .content = asked});
  TakeUpdate(*stored, changes, OrderOf(actor, request.reason(), request.request_id()));
  *response = *job;
  return OkStatus();
}

void JobsApi::TakeUpdate(v1::StoredJob& stored, const std::vector<spec::FieldChange>& changes,
                         const Order& order) {
  if (changes.empty()) return;
  v1::Job* job = stored.mutable_job();
  std::string shown;
  bool for_ranks = false;
  for (const spec::FieldChange& change : changes) {
    shown += fmt::format("{}{}: {} -> {}", shown.empty() ? "" : ", ", change.path,
                         change.before.empty() ? "unset" : change.before,
                         change.after.empty() ? "unset" : change.after);
    for_ranks |= change.path.starts_with("training.") || change.path.starts_with("checkpoint.");
  }
  SetDeadline(job);
  parts_.ledger->MarkJob(stored, Change::kState);
  parts_.ledger->AddEvent({.type = "Updated",
                           .message = shown,
                           .job_uid = job->uid(),
                           .actor = order.actor,
                           .reason = order.reason});
  if (for_ranks) parts_.keeper->verbs().SpecChanged(stored, order);
  parts_.placer->Run();
}

}  // namespace mt::daemon
