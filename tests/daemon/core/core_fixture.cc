// The coordinator that the tests of the daemon turn by hand: its store, its workers' messages and
// the calls of users.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

namespace {

std::string WithoutRestarts(std::string more) {
  if (more.find("max_restarts") != std::string::npos) return more;
  constexpr std::string_view kSection = "resilience: {";
  const size_t at = more.find(kSection);
  if (at == std::string::npos) return more + "\nresilience: {" + kNoRestarts + "}\n";
  return more.insert(at + kSection.size(), std::string(kNoRestarts) + ", ");
}

}  // namespace

v1::JobSpec TinyJob(const std::string& name, int slots, const std::string& more) {
  v1::JobSpec spec;
  const std::string text =
      "name: " + name +
      "\nmodel: {layers: 1, hidden_size: 8, heads: 2, seq_length: 8}\ndata: {path: [x], split: "
      "\"9,1,0\", tokenizer: {type: byte}}\n" +
      "training: {micro_batch_size: 1, global_batch_size: " + std::to_string(slots) +
      ", train_iters: 10}\noptimizer: {lr: 0.001}\nplacement: {slots: " + std::to_string(slots) +
      "}\n" + WithoutRestarts(more);
  const auto faults = spec::ParseJob(text, {}, &spec);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return spec;
}

v1::Command LastCommand(const Worker& worker, v1::Command::Verb verb) {
  v1::Command last;
  for (const auto& message : worker.link->received) {
    if (message.has_command() && message.command().verb() == verb) last = message.command();
  }
  return last;
}

int CountCommands(const Worker& worker, v1::Command::Verb verb) {
  int count = 0;
  for (const auto& message : worker.link->received)
    count += message.has_command() && message.command().verb() == verb;
  return count;
}

int CountAssigns(const Worker& worker) {
  int count = 0;
  for (const auto& message : worker.link->received) count += message.has_assign();
  return count;
}

int64_t LastAck(const Worker& worker) {
  int64_t ack = 0;
  for (const auto& message : worker.link->received) {
    if (message.has_report_ack()) ack = message.report_ack().seq();
  }
  return ack;
}

void CoreTest::SetUp() {
  folder_ = ::testing::TempDir() + "mt-core-" + base::RandomHex(6);
  StartCore();
}

void CoreTest::TearDown() {
  core_.reset();
  store_.reset();
  std::filesystem::remove_all(folder_);
}

void CoreTest::StartCore() {
  core_.reset();
  store_.reset();
  auto store = OpenOrMakeStore(folder_);
  ASSERT_TRUE(store.ok()) << store.status();
  store_ = std::move(store).value();
  core_ = std::make_unique<Core>(store_.get(), &clock_, nullptr, silence_);
  ASSERT_TRUE(core_->Recover().ok());
  Settle();
}

void CoreTest::Connect(Worker* worker, int slots, const std::vector<v1::HeldAllocation>& held,
                       const std::string& boot) {
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

std::string CoreTest::GpuUuid(const std::string& node, int slot) {
  return "GPU-" + node + "-" + std::to_string(slot);
}

Worker CoreTest::NewWorker(const std::string& node, int slots) {
  Worker worker{.node = node, .uid = base::NewUid(), .link = nullptr};
  Connect(&worker, slots);
  return worker;
}

void CoreTest::Report(Worker& worker, v1::WorkerMessage message) {
  message.set_seq(++worker.seq);
  core_->sessions().OnMessage(worker.session, message);
  Settle();
}

void CoreTest::Accept(Worker& worker, const v1::Job& job, bool accepted) {
  v1::WorkerMessage message;
  message.mutable_assignment_reply()->set_job_uid(job.uid());
  message.mutable_assignment_reply()->set_epoch(job.epoch());
  message.mutable_assignment_reply()->set_accepted(accepted);
  message.mutable_assignment_reply()->set_reason(accepted ? "" : "no room");
  Report(worker, message);
}

void CoreTest::Gone(Worker& worker, const v1::Job& job) {
  v1::WorkerMessage message;
  message.mutable_allocation_gone()->set_job_uid(job.uid());
  message.mutable_allocation_gone()->set_epoch(job.epoch());
  Report(worker, message);
}

void CoreTest::Settle() {
  core_->Tick();
  ASSERT_TRUE(core_->Commit().ok());
  ASSERT_TRUE(core_->Commit().ok());
}

void CoreTest::Pass(std::chrono::milliseconds time) {
  clock_.Advance(time);
  Settle();
}

void CoreTest::PassBeating(std::chrono::seconds time, std::vector<Worker*> workers) {
  for (int i = 0; i < time.count(); i += 2) {
    for (Worker* worker : workers) {
      v1::WorkerMessage message;
      message.mutable_heartbeat()->set_beat(i);
      core_->sessions().OnMessage(worker->session, message);
    }
    Pass(std::chrono::seconds(2));
  }
}

StatusOr<v1::SubmitResponse> CoreTest::TrySubmit(const v1::JobSpec& spec, const std::string& id) {
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(id);
  v1::SubmitResponse response;
  const Status status = core_->api().jobs().Submit(request, "tester", &response);
  Settle();
  if (!status.ok()) return status;
  return response;
}

v1::Job CoreTest::Submit(const v1::JobSpec& spec) {
  const auto response = TrySubmit(spec);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? Get(response->job().uid()) : v1::Job();
}

v1::Job CoreTest::Get(const std::string& uid) {
  v1::GetJobRequest request;
  request.mutable_job()->set_uid(uid);
  v1::Job job;
  EXPECT_TRUE(core_->api().jobs().Get(request, &job).ok());
  return job;
}

StatusOr<v1::Operation> CoreTest::Cancel(const std::string& uid, bool save, const std::string& id) {
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

StatusOr<v1::Operation> CoreTest::Pause(const std::string& uid, v1::PauseRequest::Mode mode,
                                        const std::string& id) {
  v1::PauseRequest request;
  request.set_mode(mode);
  return Do(&VerbsApi::Pause, request, uid, id);
}

StatusOr<v1::Operation> CoreTest::Resume(const std::string& uid, const std::string& id) {
  return Do(&VerbsApi::Resume, v1::ResumeRequest(), uid, id);
}

StatusOr<v1::Operation> CoreTest::Checkpoint(const std::string& uid, const std::string& id) {
  return Do(&VerbsApi::TriggerCheckpoint, v1::TriggerCheckpointRequest(), uid, id);
}

StatusOr<v1::Operation> CoreTest::Kill(const std::string& uid, const std::string& id) {
  return Do(&VerbsApi::Kill, v1::KillRequest(), uid, id);
}

StatusOr<v1::Operation> CoreTest::Delete(const std::string& uid, const std::string& id) {
  return Do(&VerbsApi::Delete, v1::DeleteJobRequest(), uid, id);
}

v1::Operation CoreTest::Op(const std::string& name) {
  v1::GetOperationRequest request;
  request.set_name(name);
  v1::Operation operation;
  EXPECT_TRUE(core_->api().operations().Get(request, &operation).ok()) << name;
  return operation;
}

std::vector<v1::Event> CoreTest::Events(const std::string& type) {
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

v1::Job CoreTest::StartRunning(Worker& worker, const std::string& name, int slots,
                               const std::string& more) {
  v1::Job job = Submit(TinyJob(name, slots, more));
  Accept(worker, job);
  for (int rank = 0; rank < slots; ++rank) Report(worker, RankMessage(job, rank, v1::READY));
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::RUNNING) << job.message();
  return job;
}

}  // namespace mt::daemon
