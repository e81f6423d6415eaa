// Calls on jobs that answer at once: submit, read, change the spec. Each returns its answer as of
// now; the caller sends it after the next commit (Ledger::AfterCommit). Errors carry a stable
// reason (common/rpc/reason.h). Not thread-safe (the core's thread).
#pragma once

#include <string_view>
#include <vector>

#include "daemon/api/request_book.h"
#include "daemon/ledger/ledger.h"

namespace mt::spec {
struct FieldChange;
}

namespace megatrain::v1 {
class GetJobRequest;
class ListCheckpointsRequest;
class ListCheckpointsResponse;
class JobSpec;
class ListJobsRequest;
class ListJobsResponse;
class SubmitRequest;
class SubmitResponse;
class UpdateJobRequest;
class ValidateRequest;
class ValidateResponse;
}  // namespace megatrain::v1

namespace mt::daemon {

class Authority;
class Feeds;
class JobKeeper;
class Placer;

class JobsApi {
 public:
  struct Parts {
    const Authority* authority;
    Ledger* ledger;
    JobKeeper* keeper;
    Placer* placer;
    RequestBook* requests;
    const Feeds* feeds;
  };
  // All parts outlive it.
  explicit JobsApi(const Parts& parts) : parts_(parts) {}

  // Checks a job and fills in its defaults. Needs no core: any thread may call it.
  static void Validate(const v1::ValidateRequest& request, v1::ValidateResponse* response);

  Status Submit(const v1::SubmitRequest& request, std::string_view actor,
                v1::SubmitResponse* response);
  Status Get(const v1::GetJobRequest& request, v1::Job* response);
  // The newest first, in pages, each at most a message (A2).
  Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response);
  Status ListCheckpoints(const v1::ListCheckpointsRequest& request,
                         v1::ListCheckpointsResponse* response);
  // Changes the spec at once; ranks that run are told.
  Status Update(const v1::UpdateJobRequest& request, std::string_view actor, v1::Job* response);

 private:
  static void SetDeadline(v1::Job* job);
  // The job of a request that was taken before.
  Status AnswerAgain(const v1::SubmitRequest& request, const v1::StoredRequest& before,
                     v1::SubmitResponse* response);
  // The first of these jobs, at most `most` and as many as a message holds (A2), and the token of
  // the page behind them.
  void FillPage(const std::vector<v1::StoredJob*>& jobs, size_t most,
                v1::ListJobsResponse* response) const;
  Status CheckNameIsFree(const v1::JobSpec& spec);
  Status CheckUpdate(const v1::UpdateJobRequest& request, const v1::Job& job) const;
  void TakeUpdate(v1::StoredJob& job, const std::vector<spec::FieldChange>& changes,
                  const Order& order);

  Parts parts_;
};

}  // namespace mt::daemon
