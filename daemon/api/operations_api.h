// Reads of operations, and calls that wait for one to end. Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>

#include "common/base/clock.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class GetOperationRequest;
class ListOperationsRequest;
class ListOperationsResponse;
class WaitOperationRequest;
}  // namespace megatrain::v1

namespace mt::daemon {

class LeaseTable;

class OperationsApi {
 public:
  // All outlive it.
  OperationsApi(Ledger* ledger, const LeaseTable* leases, const base::Clock* clock)
      : ledger_(ledger), leases_(leases), clock_(clock) {}

  // The operation as its user sees it: with the nodes that it waits for (lost_nodes.h).
  v1::Operation Shown(const v1::Operation& operation) const;
  // NotFound (UNKNOWN_OPERATION) where it is not kept (any more).
  Status Get(const v1::GetOperationRequest& request, v1::Operation* response);
  // The oldest first; of one job, or of all.
  Status List(const v1::ListOperationsRequest& request, v1::ListOperationsResponse* response);

  // Calls `answer` once, after a commit: when the operation is done, or the time is over, or the
  // coordinator ends.
  using Answer = std::function<void(const Status&, const v1::Operation*)>;
  // The number is for CancelWait; 0: it was answered.
  int64_t Wait(const v1::WaitOperationRequest& request, Answer answer);
  // The client has left: answers CANCELLED, if it was not answered.
  void CancelWait(int64_t id);
  size_t num_waiters() const { return waiters_.size(); }
  // Answers waiting calls whose operation is done or whose time is over.
  void AnswerWaiters();
  // The coordinator ends: answers all of them with `status`.
  void CloseWaiters(const Status& status);

 private:
  struct Waiter {
    int64_t id;
    std::string operation;
    base::MonotonicTime deadline;
    Answer answer;
  };

  Ledger* ledger_;
  const LeaseTable* leases_;
  const base::Clock* clock_;
  std::list<Waiter> waiters_;
  int64_t next_waiter_ = 1;
};

}  // namespace mt::daemon
