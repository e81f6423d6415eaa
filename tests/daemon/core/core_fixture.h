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

// A job of `slots` ranks that validation accepts; `more` is appended to the file.
inline v1::JobSpec TinyJob(const std::string& name, int slots, const std::string& more = "") {
  v1::JobSpec spec;
  const std::string text =
      "name: " + name +
      "\nmodel: {layers: 1, hidden_size: 8, heads: 2, seq_length: 8}\ndata: {path: [x], split: "
      "\"9,1,0\", tokenizer: {type: byte}}\n" +
      "training: {micro_batch_size: 1, global_batch_size: " + std::to_string(slots) +
      ", train_iters: 10}\noptimizer: {lr: 0.001}\nplacement: {slots: " + std::to_string(slots) +
      "}\n" + more;
  const auto faults = spec::ParseJob(text, {}, &spec);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return spec;
}

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
inline v1::Command LastCommand(const Worker& worker, v1::Command::Verb verb) {
  v1::Command last;
  for (const auto& message : worker.link->received) {
    if (message.has_command() && message.command().verb() == verb) last = message.command();
  }
  return last;
}

inline int CountCommands(const Worker& worker, v1::Command::Verb verb) {
  int count = 0;
  for (const auto& message : worker.link->received)
    count += message.has_command() && message.command().verb() == verb;
  return count;
}

inline int CountAssigns(const Worker& worker) {
  int count = 0;
  for (const auto& message : worker.link->received) count += message.has_assign();
  return count;
}

inline int64_t LastAck(const Worker& worker) {
  int64_t ack = 0;
  for (const auto& message : worker.link->received) {
    if (message.has_report_ack()) ack = message.report_ack().seq();
  }
  return ack;
}

class CoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "mt-core-" + base::RandomHex(6);
    StartCore();
  }
  void TearDown() override {
    core_.reset();
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  void StartCore() {
    core_.reset();
    store_.reset();
    auto store = OpenOrMakeStore(folder_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = std::move(store).value();
    core_ = std::make_unique<Core>(store_.get(), &clock_);
    ASSERT_TRUE(core_->Recover().ok());
    Settle();
  }

  void Connect(Worker* worker, int slots, const std::vector<v1::HeldAllocation>& held = {},
               const std::string& boot = "b") {
    worker->link = std::make_shared<FakeLink>();
    worker->session = core_->sessions().Open(worker->link);
    v1::WorkerMessage message;
    v1::Register* hello = message.mutable_register_();
    hello->set_node(worker->node);
    hello->set_worker_uid(worker->uid);
    hello->set_boot_id(boot);
    hello->set_version("0.0.1");
    hello->set_cores(slots);
    hello->set_gpu_problem(gpu_problem_);
    hello->mutable_labels()->insert(labels_.begin(), labels_.end());
    for (int i = 0; i < slots; ++i) {
      v1::Slot* slot = hello->add_slots();
      slot->set_index(i);
      slot->set_device(i < gpus_ ? v1::GPU : v1::CPU_SLOT);
      if (i < gpus_) slot->mutable_gpu()->set_uuid(GpuUuid(worker->node, i));
    }
    for (const auto& allocation : held) *hello->add_allocations() = allocation;
    core_->sessions().OnMessage(worker->session, message);
    Settle();
  }
  static std::string GpuUuid(const std::string& node, int slot) {
    return "GPU-" + node + "-" + std::to_string(slot);
  }
  Worker NewWorker(const std::string& node, int slots) {
    Worker worker{.node = node, .uid = base::NewUid(), .link = nullptr};
    Connect(&worker, slots);
    return worker;
  }

  void Report(Worker& worker, v1::WorkerMessage message) {
    message.set_seq(++worker.seq);
    core_->sessions().OnMessage(worker.session, message);
    Settle();
  }
  void Accept(Worker& worker, const v1::Job& job, bool accepted = true) {
    v1::WorkerMessage message;
    message.mutable_assignment_reply()->set_job_uid(job.uid());
    message.mutable_assignment_reply()->set_epoch(job.epoch());
    message.mutable_assignment_reply()->set_accepted(accepted);
    message.mutable_assignment_reply()->set_reason(accepted ? "" : "no room");
    Report(worker, message);
  }
  void Gone(Worker& worker, const v1::Job& job) {
    v1::WorkerMessage message;
    message.mutable_allocation_gone()->set_job_uid(job.uid());
    message.mutable_allocation_gone()->set_epoch(job.epoch());
    Report(worker, message);
  }

  // One round of the loop, with a tick.
  void Settle() {
    core_->Tick();
    ASSERT_TRUE(core_->Commit().ok());
    ASSERT_TRUE(core_->Commit().ok());
  }
  void Pass(std::chrono::milliseconds time) {
    clock_.Advance(time);
    Settle();
  }
  // Time passes while these workers beat.
  void PassBeating(std::chrono::seconds time, std::vector<Worker*> workers) {
    for (int i = 0; i < time.count(); i += 2) {
      for (Worker* worker : workers) {
        v1::WorkerMessage message;
        message.mutable_heartbeat()->set_beat(i);
        core_->sessions().OnMessage(worker->session, message);
      }
      Pass(std::chrono::seconds(2));
    }
  }

  StatusOr<v1::SubmitResponse> TrySubmit(const v1::JobSpec& spec,
                                         const std::string& id = base::NewUid()) {
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(id);
    v1::SubmitResponse response;
    const Status status = core_->api().jobs().Submit(request, "tester", &response);
    Settle();
    if (!status.ok()) return status;
    return response;
  }
  v1::Job Submit(const v1::JobSpec& spec) {
    const auto response = TrySubmit(spec);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? Get(response->job().uid()) : v1::Job();
  }
  v1::Job Get(const std::string& uid) {
    v1::GetJobRequest request;
    request.mutable_job()->set_uid(uid);
    v1::Job job;
    EXPECT_TRUE(core_->api().jobs().Get(request, &job).ok());
    return job;
  }
  StatusOr<v1::Operation> Cancel(const std::string& uid, bool save,
                                 const std::string& id = base::NewUid()) {
    v1::CancelRequest request;
    request.mutable_job()->set_uid(uid);
    request.set_checkpoint_first(save);
    request.set_request_id(id);
    v1::Operation operation;
    const Status status = core_->api().verbs().Cancel(request, "tester", &operation);
    Settle();
    if (!status.ok()) return status;
    return operation;
  }

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
                                const std::string& id = base::NewUid()) {
    v1::PauseRequest request;
    request.set_mode(mode);
    return Do(&VerbsApi::Pause, request, uid, id);
  }
  StatusOr<v1::Operation> Resume(const std::string& uid, const std::string& id = base::NewUid()) {
    return Do(&VerbsApi::Resume, v1::ResumeRequest(), uid, id);
  }
  StatusOr<v1::Operation> Checkpoint(const std::string& uid,
                                     const std::string& id = base::NewUid()) {
    return Do(&VerbsApi::TriggerCheckpoint, v1::TriggerCheckpointRequest(), uid, id);
  }
  StatusOr<v1::Operation> Kill(const std::string& uid, const std::string& id = base::NewUid()) {
    return Do(&VerbsApi::Kill, v1::KillRequest(), uid, id);
  }
  StatusOr<v1::Operation> Delete(const std::string& uid, const std::string& id = base::NewUid()) {
    return Do(&VerbsApi::Delete, v1::DeleteJobRequest(), uid, id);
  }
  v1::Operation Op(const std::string& name) {
    v1::GetOperationRequest request;
    request.set_name(name);
    v1::Operation operation;
    EXPECT_TRUE(core_->api().operations().Get(request, &operation).ok()) << name;
    return operation;
  }
  // All events that are kept, oldest first.
  std::vector<v1::Event> Events(const std::string& type = "") {
    v1::WatchEventsRequest request;
    request.set_since_seq(1);
    request.set_limit(100'000);
    if (!type.empty()) request.add_types(type);
    const auto followed = core_->api().streams().WatchEvents(request);
    EXPECT_TRUE(followed.ok()) << followed.status();
    std::vector<v1::Event> events;
    for (auto taken = followed->subscription->Take(nullptr); taken.item.has_value();
         taken = followed->subscription->Take(nullptr)) {
      if (taken.item->event != nullptr) events.push_back(*taken.item->event);
    }
    return events;
  }

  // A job that trains on one worker of its own.
  v1::Job StartRunning(Worker& worker, const std::string& name, int slots,
                       const std::string& more = "") {
    v1::Job job = Submit(TinyJob(name, slots, more));
    Accept(worker, job);
    for (int rank = 0; rank < slots; ++rank) Report(worker, RankMessage(job, rank, v1::READY));
    job = Get(job.uid());
    EXPECT_EQ(job.state(), v1::RUNNING) << job.message();
    return job;
  }

  std::map<std::string, std::string> labels_;  // of workers that connect
  int gpus_ = 0;                               // how many of their slots, the first ones
  std::string gpu_problem_;
  std::string folder_;
  base::ManualClock clock_;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<Core> core_;
};

}  // namespace mt::daemon
