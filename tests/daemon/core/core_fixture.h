// A coordinator's core with a manual clock, a real store in a temporary folder, and workers that
// are played by the test.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/control/epoch.h"
#include "common/rpc/reason.h"
#include "common/spec/parse.h"
#include "daemon/api/api.h"
#include "daemon/core/core.h"
#include "daemon/feeds/event_feed.h"
#include "daemon/feeds/feeds.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/ledger/ledger.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/workers/reports.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"
#include "tests/daemon/core/worker_messages.h"
#include "tests/daemon/store/new_store.h"

namespace mt::daemon {

namespace v1 = megatrain::v1;

// No fault leads to another epoch: the job fails.
inline constexpr char kNoRestarts[] =
    "max_restarts: {user: 0, hang: 0, storage: 0, infra_per_hour: 0, no_progress: 0}";

// A job of `slots` ranks that validation accepts; `more` is appended to the file. Faults end it,
// unless `more` names max_restarts.
v1::JobSpec TinyJob(const std::string& name, int slots, const std::string& more = "");

// The far end of a session: keeps what the coordinator said.
class FakeLink final : public WorkerLink {
 public:
  void Send(const v1::CoordinatorMessage& message) override { received.push_back(message); }
  void Close(const Status& status) override {
    if (!closed) end = status;
    closed = true;
  }
  std::deque<v1::CoordinatorMessage> received;
  bool closed = false;
  Status end;
};

// A worker process: registers, sends reports with rising numbers.
struct Worker {
  std::string node;
  std::string uid;
  std::shared_ptr<FakeLink> link;
  SessionId session = 0;
  int64_t seq = 0;
};

// The newest command of that verb that the worker got; empty: none.
v1::Command LastCommand(const Worker& worker, v1::Command::Verb verb);

int CountCommands(const Worker& worker, v1::Command::Verb verb);

int CountAssigns(const Worker& worker);

int64_t LastAck(const Worker& worker);

class CoreTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void StartCore();

  void Connect(Worker* worker, int slots, const std::vector<v1::HeldAllocation>& held = {},
               const std::string& boot = "b");
  static std::string GpuUuid(const std::string& node, int slot);
  Worker NewWorker(const std::string& node, int slots);

  void Report(Worker& worker, v1::WorkerMessage message);
  void Accept(Worker& worker, const v1::Job& job, bool accepted = true);
  void Gone(Worker& worker, const v1::Job& job);

  // One round of the loop, with a tick.
  void Settle();
  void Pass(std::chrono::milliseconds time);
  // Time passes while these workers beat.
  void PassBeating(std::chrono::seconds time, std::vector<Worker*> workers);

  StatusOr<v1::SubmitResponse> TrySubmit(const v1::JobSpec& spec,
                                         const std::string& id = base::NewUid());
  v1::Job Submit(const v1::JobSpec& spec);
  v1::Job Get(const std::string& uid);
  StatusOr<v1::Operation> Cancel(const std::string& uid, bool save,
                                 const std::string& id = base::NewUid());

  // A verb on a job, by uid; Request is the API's.
  template <class Request>
  StatusOr<v1::Operation> Do(Status (VerbsApi::*verb)(const Request&, std::string_view,
                                                      v1::Operation*),
                             Request request, const std::string& uid,
                             const std::string& id = base::NewUid()) {
    request.mutable_job()->set_uid(uid);
    request.set_request_id(id);
    v1::Operation operation;
    const Status status = (core_->api().verbs().*verb)(request, "tester", &operation);
    Settle();
    if (!status.ok()) return status;
    return operation;
  }
  StatusOr<v1::Operation> Pause(const std::string& uid, v1::PauseRequest::Mode mode,
                                const std::string& id = base::NewUid());
  StatusOr<v1::Operation> Resume(const std::string& uid, const std::string& id = base::NewUid());
  StatusOr<v1::Operation> Checkpoint(const std::string& uid,
                                     const std::string& id = base::NewUid());
  StatusOr<v1::Operation> Kill(const std::string& uid, const std::string& id = base::NewUid());
  StatusOr<v1::Operation> Delete(const std::string& uid, const std::string& id = base::NewUid());
  v1::Operation Op(const std::string& name);
  // All events that are kept, oldest first.
  std::vector<v1::Event> Events(const std::string& type = "");

  // A job that trains on one worker of its own.
  v1::Job StartRunning(Worker& worker, const std::string& name, int slots,
                       const std::string& more = "");

  std::map<std::string, std::string> labels_;  // of workers that connect
  int gpus_ = 0;                               // how many of their slots, the first ones
  std::string gpu_problem_;
  std::string folder_;
  SilenceLimits silence_;  // from the next StartCore on
  base::ManualClock clock_;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<Core> core_;
};

}  // namespace mt::daemon
