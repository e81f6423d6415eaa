// Api's reads of operations, nodes and streams.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/rpc/control_numbers.h"
#include "common/rpc/reason.h"
#include "daemon/api/api.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/placer.h"
#include "daemon/membership/lease_table.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

constexpr int kDefaultLogLines = 100;
constexpr int kMaxLogLines = 100'000;
constexpr int kDefaultEvents = 1'000;
constexpr int kMaxEvents = 100'000;

}  // namespace

StatusOr<Followed<JobSubscription>> Api::WatchJob(const v1::GetJobRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, Find(request.job()));
  return Followed<JobSubscription>{job->job().uid(), parts_.feeds->WatchJob(job->job())};
}

StatusOr<Followed<MetricsSubscription>> Api::WatchMetrics(const v1::StreamMetricsRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, Find(request.job()));
  const auto interval =
      std::chrono::milliseconds(std::clamp<int64_t>(request.min_interval_ms(), 0, 3'600'000));
  return Followed<MetricsSubscription>{
      job->job().uid(), parts_.feeds->WatchMetrics(job->job(), request.since_step(), interval)};
}

StatusOr<Followed<LogSubscription>> Api::TailLogs(const v1::TailLogsRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* stored, Find(request.job()));
  const v1::Job& job = stored->job();
  if (job.ranks().empty()) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is {} and has no logs: {}", job.name(),
                                 v1::JobState_Name(job.state()), job.message()),
        reason::kWrongState);
  }
  const std::set<int> asked(request.ranks().begin(), request.ranks().end());
  std::vector<int> ranks(asked.begin(), asked.end());
  if (asked.empty()) ranks.assign(1, 0);
  if (ranks.front() < 0 || ranks.back() >= job.ranks_size()) {
    return rpc::WithReason(base::InvalidArgument("job '{}' has ranks 0 to {}, no rank {}",
                                                 job.name(), job.ranks_size() - 1,
                                                 ranks.front() < 0 ? ranks.front() : ranks.back()),
                           reason::kUnknownRank);
  }
  const int lines =
      request.lines() <= 0 ? kDefaultLogLines : std::min(request.lines(), kMaxLogLines);
  return Followed<LogSubscription>{
      job.uid(), parts_.feeds->TailLogs(
                     {.job = job, .ranks = ranks, .lines = lines, .follow = request.follow()})};
}

StatusOr<Followed<EventSubscription>> Api::WatchEvents(const v1::WatchEventsRequest& request) {
  std::string uid;
  if (request.has_job()) {
    ASSIGN_OR_RETURN(const v1::StoredJob* job, Find(request.job()));
    uid = job->job().uid();
  }
  if (request.since_seq() < 0 || request.limit() < 0) {
    return rpc::WithReason(base::InvalidArgument("since_seq and limit cannot be negative"),
                           reason::kInvalidRequest);
  }
  ASSIGN_OR_RETURN(
      auto subscription,
      parts_.events->Watch(
          {.job_uid = uid,
           .since_seq = request.since_seq(),
           .limit = request.limit() == 0 ? kDefaultEvents : std::min(request.limit(), kMaxEvents),
           .follow = request.follow(),
           .types = {request.types().begin(), request.types().end()}}));
  return Followed<EventSubscription>{uid, std::move(subscription)};
}

Status Api::GetOperation(const v1::GetOperationRequest& request, v1::Operation* response) {
  const v1::Operation* operation = parts_.ledger->FindOperation(request.name());
  if (operation == nullptr) {
    return rpc::WithReason(base::NotFound("no operation '{}'", request.name()),
                           reason::kUnknownOperation);
  }
  *response = *operation;
  return OkStatus();
}

Status Api::ListOperations(const v1::ListOperationsRequest& request,
                           v1::ListOperationsResponse* response) {
  std::string uid;
  if (request.has_job()) {
    ASSIGN_OR_RETURN(const v1::StoredJob* job, Find(request.job()));
    uid = job->job().uid();
  }
  for (const v1::Operation* operation : parts_.ledger->Operations()) {
    if (uid.empty() || operation->target() == uid) *response->add_operations() = *operation;
  }
  return OkStatus();
}

int64_t Api::WaitOperation(const v1::WaitOperationRequest& request, OperationAnswer answer) {
  if (parts_.ledger->FindOperation(request.name()) == nullptr) {
    answer(rpc::WithReason(base::NotFound("no operation '{}'", request.name()),
                           reason::kUnknownOperation),
           nullptr);
    return 0;
  }
  const auto limit = std::chrono::milliseconds(std::clamp<int64_t>(
      request.timeout_ms(), 0, std::chrono::milliseconds(rpc::kWaitLimit).count()));
  waiters_.push_back(
      {next_waiter_, request.name(), parts_.clock->Now() + limit, std::move(answer)});
  return next_waiter_++;
}

void Api::CancelWait(int64_t id) {
  const auto it = std::ranges::find(waiters_, id, &Waiter::id);
  if (it == waiters_.end()) return;
  const OperationAnswer answer = std::move(it->answer);
  waiters_.erase(it);
  answer(base::Error(absl::StatusCode::kCancelled, "the client has left"), nullptr);
}

void Api::AnswerWaiters() {
  const base::MonotonicTime now = parts_.clock->Now();
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const v1::Operation* operation = parts_.ledger->FindOperation(it->operation);
    if (operation != nullptr && !operation->done() && now < it->deadline) {
      ++it;
      continue;
    }
    auto result = operation == nullptr ? nullptr : std::make_shared<v1::Operation>(*operation);
    parts_.ledger->AfterCommit([answer = std::move(it->answer), result](const Status& commit) {
      const bool found = result != nullptr;
      answer(commit.ok() && !found ? base::NotFound("the operation is not kept any more") : commit,
             result.get());
    });
    it = waiters_.erase(it);
  }
}

void Api::CloseWaiters(const Status& status) {
  for (const Waiter& waiter : std::exchange(waiters_, {})) waiter.answer(status, nullptr);
}

void Api::ShowNode(const v1::StoredWorker& worker, v1::Node* node) {
  *node = worker.node();
  node->set_state(parts_.leases->StateOf(node->name()));
}

void Api::ListNodes(v1::ListNodesResponse* response) {
  auto taken = parts_.placer->TakenSlots();
  for (const v1::StoredWorker* worker : parts_.ledger->Workers()) {
    v1::Node* node = response->add_nodes();
    ShowNode(*worker, node);
    const std::map<int, std::string>& slots = taken[node->name()];
    for (v1::Slot& slot : *node->mutable_slots()) {
      const auto found = slots.find(slot.index());
      if (found != slots.end()) slot.set_job_uid(found->second);
    }
  }
}

}  // namespace mt::daemon
