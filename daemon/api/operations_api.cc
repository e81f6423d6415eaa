// Operations as the ledger has them, and who waits for them.
#include "daemon/api/operations_api.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "daemon/api/job_ref.h"
#include "daemon/api/lost_nodes.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

}  // namespace

v1::Operation OperationsApi::Shown(const v1::Operation& operation) const {
  v1::Operation shown = operation;
  NameLostNodes(ledger_, *leases_, &shown);
  return shown;
}

Status OperationsApi::Get(const v1::GetOperationRequest& request, v1::Operation* response) {
  const v1::Operation* operation = ledger_->FindOperation(request.name());
  if (operation == nullptr) {
    return rpc::WithReason(base::NotFound("no operation '{}'", request.name()),
                           reason::kUnknownOperation);
  }
  *response = Shown(*operation);
  return OkStatus();
}

Status OperationsApi::List(const v1::ListOperationsRequest& request,
                           v1::ListOperationsResponse* response) {
  std::string uid;
  if (request.has_job()) {
    ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(ledger_, request.job()));
    uid = job->job().uid();
  }
  for (const v1::Operation* operation : ledger_->Operations()) {
    if (!uid.empty() && operation->target() != uid) continue;
    v1::Operation* const shown = response->add_operations();
    *shown = Shown(*operation);
    // A few would be more than a message holds (A2).
    if (shown->decoded().texts_size() == 0) continue;
    shown->mutable_decoded()->clear_texts();
    shown->mutable_decoded()->set_left_out(true);
  }
  return OkStatus();
}

int64_t OperationsApi::Wait(const v1::WaitOperationRequest& request, Answer answer) {
  if (ledger_->FindOperation(request.name()) == nullptr) {
    answer(rpc::WithReason(base::NotFound("no operation '{}'", request.name()),
                           reason::kUnknownOperation),
           nullptr);
    return 0;
  }
  const auto limit = std::chrono::milliseconds(std::clamp<int64_t>(
      request.timeout_ms(), 0, std::chrono::milliseconds(control::kWaitLimit).count()));
  waiters_.push_back({next_waiter_, request.name(), clock_->Now() + limit, std::move(answer)});
  return next_waiter_++;
}

void OperationsApi::CancelWait(int64_t id) {
  const auto it = std::ranges::find(waiters_, id, &Waiter::id);
  if (it == waiters_.end()) return;
  const Answer answer = std::move(it->answer);
  waiters_.erase(it);
  answer(base::Error(absl::StatusCode::kCancelled, "the client has left"), nullptr);
}

void OperationsApi::AnswerWaiters() {
  const base::MonotonicTime now = clock_->Now();
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const v1::Operation* operation = ledger_->FindOperation(it->operation);
    if (operation != nullptr && !operation->done() && now < it->deadline) {
      ++it;
      continue;
    }
    auto result =
        operation == nullptr ? nullptr : std::make_shared<v1::Operation>(Shown(*operation));
    auto tell = [answer = std::move(it->answer), result](const Status& commit) {
      const bool found = result != nullptr;
      answer(commit.ok() && !found ? base::NotFound("the operation is not kept any more") : commit,
             result.get());
    };
    // That an operation is done is told once it is on disk.
    if (operation != nullptr && operation->done()) {
      ledger_->AfterCommit(std::move(tell));
    } else {
      ledger_->AfterRound(std::move(tell));
    }
    it = waiters_.erase(it);
  }
}

void OperationsApi::CloseWaiters(const Status& status) {
  for (const Waiter& waiter : std::exchange(waiters_, {})) waiter.answer(status, nullptr);
}

}  // namespace mt::daemon
