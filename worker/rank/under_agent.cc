// Connects the parts of a rank under an agent: channel, rendezvous, commands, boards and leave
// switch. Their order as members is the order in which they may use each other.
#include "worker/rank/under_agent.h"

#include <atomic>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/control/numbers.h"
#include "common/control/rank_exit_codes.h"
#include "common/rpc/reason.h"
#include "common/spec/job_kind.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/rank/activity_board.h"
#include "worker/rank/agent_channel.h"
#include "worker/rank/channel_observer.h"
#include "worker/rank/channel_store.h"
#include "worker/rank/command_queue.h"
#include "worker/rank/environment.h"
#include "worker/rank/epoch_queries.h"
#include "worker/rank/gpu_gauge.h"
#include "worker/rank/leave_switch.h"
#include "worker/rank/mark_board.h"
#include "worker/rank/outcome.h"
#include "worker/rank/reader.h"
#include "worker/rank/run.h"
#include "worker/rank/step_log.h"
#include "worker/rank/stop_signals.h"
#include "worker/rank/telemetry_board.h"
#include "worker/train/job_data/job_tokenizer.h"

namespace mt::rank {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::JobSpec;
using megatrain::v1::Placement;
using megatrain::v1::RankAssignment;
using megatrain::v1::RankBeat;
using megatrain::v1::RankMessage;
using megatrain::v1::RankWord;

namespace {

constexpr std::chrono::seconds kLastReportsLimit{2};  // for the last reports to be acknowledged
constexpr char kUnsentName[] = "unsent.pb";

std::string TakeToken() {
  const char* token = std::getenv("MT_RANK_TOKEN");  // NOLINT(concurrency-mt-unsafe): one thread
  std::string taken = token == nullptr ? "" : token;
  ::unsetenv("MT_RANK_TOKEN");  // NOLINT(concurrency-mt-unsafe): before threads start
  return taken;
}

// The coordinator sends a completed job; this is checked nevertheless.
Status CompleteAndResolve(int threads, JobSpec* job) {
  RETURN_IF_ERROR(spec::ToStatus(spec::CompleteJob({.stored = true}, job)));
  return spec::ToStatus(
      spec::ResolveForSlots({.gpu = job->placement().device() == Placement::DEVICE_GPU,
                             .cores_per_node = threads,
                             .slots_per_node = 1},
                            job));
}

std::optional<train::CommandKind> KindOf(Command::Verb verb) {
  switch (verb) {
    case Command::STOP_WITH_SAVE:
      return train::CommandKind::kStopWithSave;
    case Command::STOP_WITHOUT_SAVE:
      return train::CommandKind::kStopWithoutSave;
    case Command::HOLD:
      return train::CommandKind::kHold;
    case Command::RESUME:
      return train::CommandKind::kResume;
    case Command::CHECKPOINT_NOW:
      return train::CommandKind::kCheckpointNow;
    case Command::UPDATE:
      return train::CommandKind::kUpdate;
    case Command::RELEASE:
      return train::CommandKind::kRelease;
    case Command::PROFILE:
      return train::CommandKind::kProfile;
    case Command::DECODE:
      return train::CommandKind::kDecode;
    default:
      return std::nullopt;
  }
}

std::optional<checkpoint::ResumeBase> BaseOf(const RankAssignment& assignment) {
  if (!assignment.has_base()) return std::nullopt;
  const auto& base = assignment.base();
  return checkpoint::ResumeBase{.job_uid = base.job_uid(),
                                .step = base.step(),
                                .epoch = base.epoch(),
                                .digest = base.digest(),
                                .root_id = base.root_id(),
                                .allow_older = base.allow_older(),
                                .run = base.run()};
}

class AgentRank {
 public:
  explicit AgentRank(const Options& options)
      : options_(options),
        leave_(control::kAbortSelfExit, [this] { ExitNow("it has not left by itself"); }),
        store_([this](RankMessage message) { channel_.Send(std::move(message)); }),
        epoch_queries_([this](RankMessage message) { channel_.Send(std::move(message)); }),
        channel_({.socket = options.agent_socket,
                  .job_uid = options.job_uid,
                  .epoch = options.epoch,
                  .rank = options.rank,
                  .token = TakeToken(),
                  .fill_beat = [this](RankBeat* out) { FillBeat(out); },
                  .on_attached = [this] { store_.OnAttached(); }},
                 [this](const AgentMessage& message) { OnMessage(message); }) {}

  int Run() {
    const train::TrainResult result = RunAssigned();
    Report(result);
    channel_.Close(kLastReportsLimit);
    KeepUnsent();
    return ExitCodeOf(result.status);
  }

  // Ends the process; any thread. Logs where the device stands.
  [[noreturn]] void ExitNow(const char* why) const {
    log::Warn("ends at once", {{"why", why}, {"device", marks_.Text()}});
    log::Flush();
    std::_Exit(control::kExitTransient);
  }

 private:
  void FillBeat(RankBeat* beat) {
    board_.Fill(beat->mutable_telemetry());
    gpu_.Fill(beat->mutable_telemetry());
    megatrain::v1::DeviceMark mark;
    if (marks_.Fill(&mark)) *beat->mutable_mark() = std::move(mark);
    megatrain::v1::Activity activity;
    if (options_.rank != 0 || !activities_.Fill(&activity)) return;
    if (activity.kind() == megatrain::v1::Activity::STEP) activity.set_done(marks_.Microbatch());
    *beat->mutable_activity() = std::move(activity);
  }

  train::TrainResult RunAssigned() {
    train::TrainResult result;
    RankAssignment assignment;
    JobSpec job;
    result.status = channel_.WaitAssigned(control::kPlacementAnswer, &assignment);
    job = assignment.spec();
    threads_ = assignment.threads();
    if (result.status.ok()) result.status = CompleteAndResolve(threads_, &job);
    reads_ = spec::KindOf(job).reads;
    if (result.status.ok() && !reads_)
      result.status = train::SettleVocabulary(assignment.data_root(), &job);
    if (result.status.ok()) result.status = CheckGpu(job);
    if (!result.status.ok()) return result;
    ChannelObserver to_agent(
        {.send = [this](RankMessage m) { channel_.Send(std::move(m)); },
         .note_progress = [this](int64_t s) { channel_.NoteProgress(s); },
         .post_counters = [this](const train::RankCounters& counters) { board_.Post(counters); },
         .activities = &activities_,
         .failed = [this](const Status& why, bool alone) { OnFailed(why, alone); }});
    if (!options_.gpu.empty()) gpu_.Start(options_.gpu);
    SendState(megatrain::v1::COMM_INIT);
    if (reads_) {
      return RunReaderRank({.job = &job,
                            .data_root = assignment.data_root(),
                            .checkpoint_root = assignment.checkpoint_root(),
                            .checkpoint_root_id = assignment.checkpoint_root_id(),
                            .gpu = options_.gpu,
                            .output_file = assignment.output_file(),
                            .observer = &to_agent,
                            .commands = &commands_});
    }
    StepLog observer(job, &to_agent);
    return rank::Run(
        {.job = &job,
         .job_uid = options_.job_uid,
         .epoch = options_.epoch,
         .ended_job_uids = {assignment.ended_job_uids().begin(), assignment.ended_job_uids().end()},
         .base = BaseOf(assignment),
         .restart = assignment.restart(),
         .rank = options_.rank,
         .world_size = assignment.world_size(),
         .gpu = options_.gpu,
         .data_root = assignment.data_root(),
         .checkpoint_root = assignment.checkpoint_root(),
         .cache_root = assignment.cache_root(),
         .checkpoint_root_id = assignment.checkpoint_root_id(),
         .epoch_open = [this] { return epoch_queries_.IsOpen(control::kEpochAnswer); },
         .kept_steps = [this] { return KeptSteps(); },
         .address = assignment.address(),
         .node = options_.node,
         .store = &store_,
         .observer = &observer,
         .commands = options_.rank == 0 ? &commands_ : nullptr,
         .hold = assignment.hold(),
         .trace_directory = options_.rank == 0 ? assignment.log_directory() : "",
         .on_comm_init = [this](double seconds) { board_.SetCommInit(seconds); },
         .on_groups = [this](parallel::RankGroups* groups) { leave_.SetGroups(groups); },
         .on_trainer = [this](const train::Trainer* trainer) { marks_.SetTrainer(trainer); }});
  }

  // A rank on a GPU must use the one that the agent has assigned to it.
  Status CheckGpu(const JobSpec& job) const {
    if (job.placement().device() != Placement::DEVICE_GPU || !options_.gpu.empty()) {
      return OkStatus();
    }
    return base::Internal("the job runs on GPUs, but the worker gave this rank none (--gpu)");
  }

  void SendState(megatrain::v1::RankState state) {
    RankMessage message;
    message.mutable_state()->set_state(state);
    channel_.Send(std::move(message));
  }

  // The agent hears of a fault at once. What follows, ending groups and destroying what the run has
  // made, may wait for a device that answers no more: a rank that leaves its peers is given as long
  // as one that is asked to leave.
  void OnFailed(const Status& why, bool alone) {
    SendFault(why);
    if (alone) leave_.Expect();
  }

  void SendFault(const Status& why) {
    if (std::exchange(fault_sent_, true)) return;
    RankMessage message;
    auto& fault = *message.mutable_fault();
    fault.set_cause(ProtoCauseOf(why));
    fault.set_message(base::Message(why));
    fault.set_exit_code(ExitCodeOf(why));
    fault.set_reason(rpc::ReasonOf(why));
    fault.set_fence_epoch(checkpoint::FenceEpochOf(why));
    log::Error("the rank has failed",
               {{"exit_code", fault.exit_code()}, {"why", base::Message(why)}});
    channel_.Send(std::move(message));
  }

  void Report(const train::TrainResult& result) {
    if (!result.status.ok()) return SendFault(result.status);
    if (options_.rank != 0) return;
    RankMessage message;
    auto& ended = *message.mutable_job_report()->mutable_training_ended();
    ended.set_last_step(result.last_step);
    ended.set_completed(result.completed);
    ended.set_final_save_failed(result.final_save_failed);
    ended.set_message(result.message);
    ended.set_exit_condition(result.exit_condition);
    if (reads_) {
      log::Info("a checkpoint was read", {{"what", result.message}});
    } else {
      log::Info("training has ended", {{"last_step", result.last_step},
                                       {"completed", result.completed},
                                       {"message", result.message}});
    }
    channel_.Send(std::move(message));
  }

  // Stores what was not acknowledged before the end, for the next agent to report.
  void KeepUnsent() const {
    const std::string unsent = channel_.Unacknowledged();
    if (unsent.empty() || options_.state_dir.empty()) return;
    const std::string path = base::JoinPath(options_.state_dir, kUnsentName);
    const Status written = base::WriteFileAtomic(path, unsent, 0600);
    if (!written.ok()) log::Error("reports are lost", {{"why", base::Message(written)}});
  }

  // Called on the channel's reading thread.
  void OnMessage(const AgentMessage& message) {
    switch (message.body_case()) {
      case AgentMessage::kWord:
        OnCommand(message.word());
        break;
      case AgentMessage::kRendezvousValue:
        store_.OnValue(message.rendezvous_value().key(), message.rendezvous_value().value());
        break;
      case AgentMessage::kEpochAnswer:
        epoch_queries_.OnAnswer(message.epoch_answer().query_id(), message.epoch_answer().open());
        break;
      case AgentMessage::kExit:
        log::Warn("asked to leave", {{"why", message.exit().reason()}, {"device", marks_.Text()}});
        store_.Abort(message.exit().reason());
        epoch_queries_.Abort();
        leave_.Leave(message.exit().reason());
        break;
      default:
        break;
    }
  }

  // A command travels to the rank as a RankWord.
  void OnCommand(const RankWord& word) {
    if (word.verb() == Command::KEEP_STEPS) return KeepSteps(word);
    const std::optional<train::CommandKind> kind = KindOf(word.verb());
    if (!kind) {
      Refuse(word, base::InvalidArgument("a rank knows no verb {}", static_cast<int>(word.verb())));
      return;
    }
    train::Command command{
        .kind = *kind,
        .id = word.command_id(),
        .label = {.tag = word.label().tag(),
                  .meta = {word.label().meta().begin(), word.label().meta().end()}},
        .profile_steps = word.profile_steps()};
    if (command.kind == train::CommandKind::kDecode)
      command.texts = train::TextRequestOf(word.generate());
    if (command.kind == train::CommandKind::kUpdate) {
      JobSpec job = word.spec();
      const Status completed = CompleteAndResolve(threads_, &job);
      if (!completed.ok()) return Refuse(word, completed);
      command.settings = train::SettingsOf(job);
    }
    commands_.Push(std::move(command));
  }

  // Acts at once: rank 0 alone prunes.
  void KeepSteps(const RankWord& word) {
    {
      base::MutexLock lock(&kept_mu_);
      kept_steps_.assign(word.kept_steps().begin(), word.kept_steps().end());
    }
    RankMessage message;
    message.mutable_command_done()->set_command_id(word.command_id());
    channel_.Send(std::move(message));
  }
  std::vector<int64_t> KeptSteps() const {
    base::MutexLock lock(&kept_mu_);
    return kept_steps_;
  }

  void Refuse(const RankWord& word, const Status& why) {
    log::Warn("a word was refused", {{"id", word.command_id()}, {"why", base::Message(why)}});
    RankMessage message;
    message.mutable_command_done()->set_command_id(word.command_id());
    message.mutable_command_done()->set_error(base::Message(why));
    channel_.Send(std::move(message));
  }

  const Options options_;
  std::atomic<int> threads_ = 0;  // CPU threads, from the assignment
  bool reads_ = false;            // the job is a reader; training thread
  bool fault_sent_ = false;       // training thread
  mutable base::Mutex kept_mu_;
  std::vector<int64_t> kept_steps_ GUARDED_BY(kept_mu_);  // RunArgs::kept_steps
  CommandQueue commands_;
  TelemetryBoard board_;
  GpuGauge gpu_;
  MarkBoard marks_;
  ActivityBoard activities_;
  LeaveSwitch leave_;
  ChannelStore store_;
  EpochQueries epoch_queries_;
  AgentChannel channel_;  // last: its threads use all of the above
};

}  // namespace

int RunUnderAgent(const Options& options) {
  log::Init({.binary = "mt-rank"});
  log::SetRank(options.rank);
  TellCleared();
  AgentRank rank(options);
  // SIGTERM ends the rank at once; a graceful stop is a command.
  const StopSignals signals([&rank](int) { rank.ExitNow("SIGTERM"); });
  return rank.Run();
}

}  // namespace mt::rank
