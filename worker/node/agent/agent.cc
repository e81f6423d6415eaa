// Dispatch: what concerns one job goes to its Allocation, what concerns slots to NodeSlots, and
// what comes back is reported through the session.
#include "worker/node/agent/agent.h"

#include <algorithm>
#include <set>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "worker/node/ranks/allocation_record.h"
#include "worker/node/ranks/job_names.h"

namespace mt::node {

using control::EpochText;
using megatrain::v1::AllocationRecord;
using megatrain::v1::Assign;
using megatrain::v1::Command;
using megatrain::v1::CoordinatorMessage;
using megatrain::v1::RankMessage;
using megatrain::v1::Register;
using megatrain::v1::Registered;
using megatrain::v1::StepRecord;
using megatrain::v1::WorkerMessage;

namespace {

// How long a stopping agent waits for its last reports to be acknowledged.
constexpr std::chrono::milliseconds kLastReports{2000};
constexpr std::chrono::milliseconds kLastReportsPoll{50};

// What a rank's message tells of its speed and memory.
void Measure(WorkerMetrics* metrics, const std::pair<std::string, int64_t>& job, int rank,
             const RankMessage& message) {
  const int64_t step =
      std::max({message.beat().step(), message.state().step(), message.step().step()});
  if (step > 0) metrics->OnStep(job, rank, step);
  if (message.beat().has_telemetry()) {
    metrics->OnTelemetry(job, rank, message.beat().telemetry());
  }
}

}  // namespace

Agent::Agent(Config config, Seams seams)
    : config_(std::move(config)),
      seams_(seams),
      obedience_(config_.cluster, seams.cluster_store),
      session_(seams.loop, seams.clock, config_.limits.session, seams.coordinator, this),
      rendezvous_({.links = seams.ranks,
                   .report = [this](WorkerMessage message) { Report(std::move(message)); },
                   .send_now = [this](const WorkerMessage& m) { session_.SendNow(m); }}),
      epochs_({.links = seams.ranks,
               .send_now = [this](const WorkerMessage& m) { session_.SendNow(m); }}),
      activities_([this](const WorkerMessage& m) { session_.SendNow(m); }),
      readings_({.loop = seams.loop,
                 .interval = config_.limits.readings,
                 .send_now = [this](const WorkerMessage& m) { session_.SendNow(m); }}),
      logs_({.loop = seams.loop,
             .limits = config_.limits.logs,
             .log_root = config_.node.log_root,
             .is_live = [this](const std::string& job_uid) { return allocations_.IsLive(job_uid); },
             .send_now = [this](const WorkerMessage& m) { session_.SendNow(m); },
             .queued_bytes = [this] { return session_.QueuedBytes(); }}),
      slots_({.loop = seams.loop,
              .clock = seams.clock,
              .probe = seams.gpu_probe,
              .limits = config_.limits.gpus,
              .survey_interval = config_.limits.gpu_survey,
              .offer = config_.gpus,
              .cpu_slots = config_.cpu_slots,
              .cpu_problem = config_.cpu_problem,
              .gpus_wanted = config_.gpus_wanted,
              .cuda_module = config_.cuda_module,
              .user_of = [this](int slot,
                                const std::string& gpu) { return allocations_.UserOf(slot, gpu); },
              .changed = [this] { ReportSlots(); }}) {
  seams_.ranks->SetListener(this);
  seams_.launcher->SetListener(this);
}

Agent::~Agent() = default;

void Agent::Start() {
  session_.Start();
  slots_.Start();
}

void Agent::Report(WorkerMessage message, Outbox::Acked acked) {
  session_.FlushSteps();  // the steps gathered so far must arrive before this report
  session_.Report(std::move(message), std::move(acked));
}

void Agent::FillRegister(Register* message) {
  message->set_node(config_.node_name);
  message->set_worker_uid(config_.worker_uid);
  message->set_boot_id(config_.boot_id);
  message->set_machine_id(config_.machine_id);
  if (seams_.secret != nullptr) {
    message->set_node_secret(seams_.secret->secret());
    message->set_generation(seams_.secret->generation());
  }
  message->set_version(config_.version);
  message->set_address(config_.node.address);
  message->set_cores(config_.cores);
  message->set_memory_bytes(config_.memory_bytes);
  message->mutable_labels()->insert(config_.labels.begin(), config_.labels.end());
  message->set_http_endpoint(config_.http_endpoint);
  obedience_.FillRegister(message);
  message->set_gpu_problem(slots_.GpuProblem());
  if (config_.node.checkpoint_root_id) {
    message->set_checkpoint_root_id(config_.node.checkpoint_root_id());
  }
  for (int slot = 0; slot < slots_.size(); ++slot) slots_.Describe(slot, message->add_slots());
  // Reports about ended allocations are sent again after a reconnect, so they need not be listed;
  // but a coordinator that does not know this agent yet would take an unlisted one for lost.
  for (const auto& [job, allocation] : allocations_.all()) {
    if (was_registered_ && allocation->gone()) continue;
    allocation->Describe(message->add_allocations());
  }
}

Status Agent::CheckRegistered(const Registered& registered) {
  readings_.SetWanted(registered.takes_readings());
  return obedience_.Check(registered);
}

void Agent::OnSessionClosed(const Status& why) { obedience_.OnClosed(why); }

void Agent::OnRegistered() {
  was_registered_ = true;
  rendezvous_.OnRegistered();
}

void Agent::OnSecretGiven(const std::string& secret, int64_t generation) {
  if (seams_.secret == nullptr) return;
  const Status kept = seams_.secret->Keep(secret, generation);
  if (!kept.ok()) {
    // The coordinator gives it again at the next registration, as it has not heard that it is kept.
    log::Error("this node's secret cannot be written down: its name is not protected yet",
               {{"why", base::Message(kept)}});
    return;
  }
  WorkerMessage message;
  message.mutable_secret_kept()->set_generation(generation);
  session_.SendNow(message);
}

void Agent::OnDisconnected() {
  logs_.OnDisconnected();
  seams_.metrics->OnDisconnected();
}

void Agent::OnHeartbeatAnswered(std::chrono::nanoseconds round_trip) {
  seams_.metrics->OnHeartbeatAnswered(round_trip);
}

void Agent::OnCoordinatorMessage(const CoordinatorMessage& message) {
  switch (message.body_case()) {
    case CoordinatorMessage::kAssign:
      OnAssign(message.assign());
      break;
    case CoordinatorMessage::kCommand:
      OnCommand(message.command());
      break;
    case CoordinatorMessage::kRendezvousValue: {
      const auto& value = message.rendezvous_value();
      const JobEpoch job(value.job_uid(), value.epoch());
      if (allocations_.Find(job) != nullptr) rendezvous_.OnValue(job, value.key(), value.value());
      break;
    }
    case CoordinatorMessage::kHeldRequest: {
      WorkerMessage report;
      allocations_.Describe(message.held_request().with_assign(), report.mutable_held_report());
      Report(std::move(report));
      break;
    }
    case CoordinatorMessage::kEpochAnswer:
      epochs_.OnAnswer(message.epoch_answer());
      break;
    case CoordinatorMessage::kLogRequest:
      logs_.OnRequest(message.log_request());
      break;
    case CoordinatorMessage::kLogCancel:
      logs_.OnCancel(message.log_cancel().request_id());
      break;
    default:
      log::Warn("unknown message from the coordinator",
                {{"kind", static_cast<int>(message.body_case())}});
  }
}

Status Agent::CheckAssign(const Assign& assign) {
  RETURN_IF_ERROR(CheckJobNames(assign.spec().name(), assign.job_uid()));
  if (shutdown_done_) return base::FailedPrecondition("this worker is stopping");
  if (assign.ranks().empty()) return base::InvalidArgument("no rank was assigned");
  const auto newest = allocations_.NewestEpoch(assign.job_uid());
  if (newest && assign.epoch() == *newest) {
    return base::FailedPrecondition("epoch {} of job {} is over: its ranks have ended",
                                    EpochText(assign.epoch()), assign.job_uid());
  }
  if (newest && assign.epoch() < *newest) {
    return base::FailedPrecondition("epoch {} of job {} is closed: {} was here",
                                    EpochText(assign.epoch()), assign.job_uid(),
                                    EpochText(*newest));
  }
  std::set<int> slots;
  for (const auto& placement : assign.ranks()) {
    const int slot = placement.slot();
    if (!slots_.table().Has(slot) || !slots.insert(slot).second) {
      return base::InvalidArgument("slot {} does not exist or was given twice", slot);
    }
    if (placement.rank() < 0 || placement.rank() >= assign.world_size()) {
      return base::InvalidArgument("rank {} of {}", placement.rank(), assign.world_size());
    }
    const auto device = assign.spec().placement().device();
    RETURN_IF_ERROR(slots_.Check(slot, device == megatrain::v1::Placement::DEVICE_GPU));
  }
  return OkStatus();
}

void Agent::OnAssign(const Assign& assign) {
  const JobEpoch job(assign.job_uid(), assign.epoch());
  // One that has ended, and whose end the coordinator has acknowledged, is not followed again.
  const bool repeated = allocations_.Find(job) != nullptr &&
                        allocations_.NewestEpoch(assign.job_uid()) == assign.epoch();
  for (const auto& [held, allocation] : allocations_.all()) {
    if (held.first == job.first && held.second < job.second && !allocation->gone()) {
      allocation->End(fmt::format("epoch {} has begun", EpochText(job.second)), /*asked=*/true);
    }
  }
  Status status = repeated ? OkStatus() : CheckAssign(assign);
  const std::unique_ptr<AllocationRecord> record =
      NewRecord(assign, config_.node.log_root, slots_.table());
  // On disk before anything starts, so that a later agent finds every rank that may run.
  if (status.ok() && !repeated) status = seams_.store->Save(*record);
  WorkerMessage reply;
  reply.mutable_assignment_reply()->set_job_uid(assign.job_uid());
  reply.mutable_assignment_reply()->set_epoch(assign.epoch());
  reply.mutable_assignment_reply()->set_accepted(status.ok());
  reply.mutable_assignment_reply()->set_reason(base::Message(status));
  Report(std::move(reply));
  if (repeated || !status.ok()) return;
  log::Info("ranks assigned", {{"job", assign.job_uid()},
                               {"name", assign.spec().name()},
                               {"epoch", EpochText(assign.epoch())},
                               {"ranks", assign.ranks_size()}});
  AddAllocation(*record)->StartRanks();
}

Allocation* Agent::AddAllocation(const AllocationRecord& record) {
  const JobEpoch job(record.assign().job_uid(), record.assign().epoch());
  auto allocation = std::make_unique<Allocation>(
      Allocation::Deps{
          .loop = seams_.loop,
          .clock = seams_.clock,
          .launcher = seams_.launcher,
          .links = seams_.ranks,
          .store = seams_.store,
          .event_files = seams_.event_files,
          .node = &config_.node,
          .slots = &slots_.table(),
          .limits = config_.limits.ranks,
          .next_launch = [this] { return next_launch_++; },
          .report = [this](WorkerMessage message,
                           Outbox::Acked acked) { Report(std::move(message), std::move(acked)); },
          .report_step =
              [this, job](const StepRecord& step, Outbox::Acked acked) {
                session_.ReportStep(job.first, job.second, step, std::move(acked));
              },
          .await_free =
              [this](const std::vector<std::string>& gpus, std::function<void()> done) {
                slots_.AwaitFree(gpus, std::move(done));
              },
          .slot_done = [this](int slot, const std::string& why) { slots_.Break(slot, why); },
          .on_gone = [this, job] { OnGone(job); },
          .on_settled = [this, job] { OnSettled(job); }},
      record);
  // A damaged record has no job name for the metrics' labels.
  if (!record.assign().spec().name().empty()) seams_.metrics->OnJob(record);
  return allocations_.Add(std::move(allocation));
}

void Agent::Adopt(const AllocationRecord& record, const std::string& damage) {
  const Assign& assign = record.assign();
  if (damage.empty()) {
    log::Info("ranks of an earlier agent are taken over", {{"job", assign.job_uid()},
                                                           {"name", assign.spec().name()},
                                                           {"epoch", EpochText(assign.epoch())},
                                                           {"ranks", record.ranks_size()}});
  } else {
    log::Error("ranks of an earlier agent cannot be gone on with: ending them",
               {{"job", assign.job_uid()}, {"epoch", EpochText(assign.epoch())}, {"why", damage}});
  }
  for (const auto& rank : record.ranks()) slots_.Occupied(rank.gpu());
  AddAllocation(record)->AdoptRanks(damage);
}

void Agent::OnCommand(const Command& command) {
  const Status status = Execute(command);
  WorkerMessage ack;
  ack.mutable_command_ack()->set_command_id(command.command_id());
  ack.mutable_command_ack()->set_accepted(status.ok());
  ack.mutable_command_ack()->set_message(base::Message(status));
  Report(std::move(ack));
}

Status Agent::Execute(const Command& command) {
  Allocation* const allocation = allocations_.Find({command.job_uid(), command.epoch()});
  if (allocation == nullptr || allocation->gone()) {
    return base::NotFound("job {} epoch {} is not on this node", command.job_uid(),
                          EpochText(command.epoch()));
  }
  switch (command.verb()) {
    case Command::KILL:
      allocation->End(command.reason().empty() ? "killed on request" : command.reason(),
                      /*asked=*/true);
      return OkStatus();
    case Command::STOP_WITH_SAVE:
    case Command::STOP_WITHOUT_SAVE:
    case Command::HOLD:
    case Command::RESUME:
    case Command::CHECKPOINT_NOW:
    case Command::UPDATE:
    case Command::RELEASE:
    case Command::PROFILE:
    case Command::DECODE:
    case Command::KEEP_STEPS:
      return allocation->PassCommand(command);
    default:
      return base::InvalidArgument("unknown verb {}", static_cast<int>(command.verb()));
  }
}

Status Agent::Attach(LinkId link, const RankMessage& message) {
  if (!message.has_hello()) return base::FailedPrecondition("the first message must be hello");
  const JobEpoch job(message.hello().job_uid(), message.hello().epoch());
  Allocation* const allocation = allocations_.Find(job);
  if (allocation == nullptr) {
    return base::FailedPrecondition("job {} epoch {} is not on this node", job.first,
                                    EpochText(job.second));
  }
  RETURN_IF_ERROR(allocation->Attach(link, message.hello()));
  links_[link] = job;
  return OkStatus();
}

void Agent::OnRankMessage(LinkId link, const RankMessage& message) {
  const auto attached = links_.find(link);
  if (attached == links_.end()) {
    const Status status = Attach(link, message);
    if (status.ok()) return;
    log::Warn("a rank's call was refused", {{"why", base::Message(status)}});
    seams_.ranks->Refuse(link, base::Message(status));
    return;
  }
  const JobEpoch& job = attached->second;
  Allocation* const allocation = allocations_.Find(job);
  // The rank may have called again since, on another link.
  if (allocation == nullptr) return;
  const LocalRank* const rank = allocation->ranks().FindByLink(link);
  if (rank == nullptr) return;
  Measure(seams_.metrics, job, rank->rank, message);
  if (rank->rank == 0 && message.has_beat()) activities_.OnBeat(job, message.beat());
  if (message.has_beat()) readings_.OnBeat(job, rank->rank, message.beat());
  switch (message.body_case()) {
    case RankMessage::kRendezvousSet:
      rendezvous_.Set(job, message.rendezvous_set().key(), message.rendezvous_set().value());
      break;
    case RankMessage::kRendezvousGet:
      rendezvous_.Get(job, message.rendezvous_get().key(), link);
      break;
    case RankMessage::kEpochQuery:
      epochs_.Ask(job, message.epoch_query().query_id(), link);
      break;
    default:
      allocation->OnRankMessage(link, message);
  }
}

void Agent::OnRankClosed(LinkId link) {
  const auto attached = links_.find(link);
  if (attached == links_.end()) return;
  if (Allocation* allocation = allocations_.Find(attached->second)) allocation->OnLinkClosed(link);
  links_.erase(attached);
}

void Agent::OnRankGone(LaunchId launch, const RankExit& exit) {
  if (Allocation* allocation = allocations_.FindByLaunch(launch)) {
    allocation->OnRankGone(launch, exit);
  }
}

void Agent::OnGone(const JobEpoch& job) {
  rendezvous_.Forget(job);
  epochs_.Forget(job);
  activities_.Forget(job);
  readings_.Forget(job);
  seams_.metrics->OnJobGone(job);
  log::Info("all ranks of a job are gone", {{"job", job.first}, {"epoch", EpochText(job.second)}});
  if (shutdown_done_ && allocations_.OnlyLeftRunning()) FinishShutdown();
}

// The coordinator has the allocation's end on disk: nothing of it is needed any more.
void Agent::OnSettled(const JobEpoch& job) {
  seams_.store->Remove(job.first, job.second);
  allocations_.Remove(job);
}

void Agent::ReportSlots() {
  WorkerMessage message;
  auto& changed = *message.mutable_slots_changed();
  for (int slot = 0; slot < slots_.size(); ++slot) slots_.Describe(slot, changed.add_slots());
  changed.set_gpu_problem(slots_.GpuProblem());
  if (config_.node.checkpoint_root_id) {
    changed.set_checkpoint_root_id(config_.node.checkpoint_root_id());
  }
  Report(std::move(message));
}

void Agent::Shutdown(std::function<void()> done) {
  if (shutdown_done_) return;
  shutdown_done_ = std::move(done);
  slots_.Finish();
  shutdown_deadline_ = base::MonotonicTime::max();
  for (const auto& [job, allocation] : allocations_.all()) {
    if (allocation->gone()) continue;
    if (allocation->stops_with_agent()) {
      allocation->End("the worker agent was stopped", /*asked=*/false);
    } else {
      log::Info("ranks go on without their agent (on_agent_exit: continue)",
                {{"job", job.first}, {"epoch", EpochText(job.second)}});
    }
  }
  if (allocations_.OnlyLeftRunning()) FinishShutdown();
}

void Agent::FinishShutdown() {
  if (shutdown_deadline_ == base::MonotonicTime::max()) {
    session_.FlushSteps();
    shutdown_deadline_ = seams_.clock->Now() + kLastReports;
  }
  const bool waiting = session_.registered() && session_.outbox().num_reports() > 0;
  if (waiting && seams_.clock->Now() < shutdown_deadline_) {
    seams_.loop->After(kLastReportsPoll, [this] { FinishShutdown(); });
    return;
  }
  session_.Stop();
  shutdown_done_();
}

}  // namespace mt::node
