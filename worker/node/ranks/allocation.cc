// Every event of a rank ends here in the calls to the parts that concern it, in an order that the
// coordinator sees: the rank's own reports, how it ended, the end of the others, AllocationGone.
#include "worker/node/ranks/allocation.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "common/control/rank_exit_codes.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "worker/node/process/log_file.h"
#include "worker/node/ranks/job_names.h"
#include "worker/node/ranks/unsent_messages.h"

namespace mt::node {

using megatrain::v1::AgentMessage;
using megatrain::v1::AllocationRecord;
using megatrain::v1::Assign;
using megatrain::v1::Command;
using megatrain::v1::RankHello;
using megatrain::v1::RankMessage;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;

namespace {

// The job's own time-outs replace the agent's.
ProgressLimits LimitsOf(const Assign& assign, ProgressLimits limits) {
  const auto& timeouts = assign.spec().resilience().timeouts();
  if (timeouts.has_comm_init()) limits.comm_init = std::chrono::milliseconds(timeouts.comm_init());
  if (timeouts.has_load()) limits.load = std::chrono::milliseconds(timeouts.load());
  return limits;
}

AgentMessage AssignmentMessage(const Assign& assign, const NodeFacts& node) {
  AgentMessage message;
  auto& assignment = *message.mutable_assignment();
  *assignment.mutable_spec() = assign.spec();
  assignment.set_world_size(assign.world_size());
  assignment.set_threads(std::max(1, assign.threads_per_rank()));
  assignment.set_data_root(node.data_root);
  assignment.set_checkpoint_root(node.checkpoint_root);
  assignment.set_cache_root(node.cache_root);
  assignment.set_address(node.address);
  *assignment.mutable_ended_job_uids() = assign.ended_job_uids();
  assignment.set_hold(assign.hold());
  if (assign.has_base()) *assignment.mutable_base() = assign.base();
  assignment.set_restart(assign.restart());
  if (node.checkpoint_root_id) assignment.set_checkpoint_root_id(node.checkpoint_root_id());
  if (!node.log_root.empty()) {
    assignment.set_log_directory(
        LogDirectory(node.log_root, assign.spec().name(), assign.job_uid()));
    if (assign.spec().has_read())
      assignment.set_output_file(OutputFile(node.log_root, assign.spec().name(), assign.job_uid()));
  }
  return message;
}

// The job's folder has the name of that of its logs.
EventFilePlace EventFileOf(const Assign& assign, const NodeFacts& node) {
  return {.log_root = node.log_root,
          .folder = LogDirectory(assign.spec().telemetry().tensorboard(), assign.spec().name(),
                                 assign.job_uid()),
          .label = fmt::format("{}-{}", assign.job_uid().substr(0, 8),
                               control::EpochText(assign.epoch()))};
}

}  // namespace

Allocation::Allocation(Deps deps, const AllocationRecord& record)
    : deps_(std::move(deps)),
      record_(std::make_unique<AllocationRecord>(record)),
      ranks_(record, deps_.node->rank_state),
      stalls_({.loop = deps_.loop,
               .clock = deps_.clock,
               .interval = deps_.limits.progress_look,
               .limits = LimitsOf(record.assign(), deps_.limits.progress),
               .job_uid = job_uid(),
               .epoch = epoch(),
               .changed = [this](const LocalRank& rank) { ReportState(rank); }},
              &ranks_),
      relay_({.links = deps_.links,
              .job_uid = job_uid(),
              .epoch = epoch(),
              .report = deps_.report,
              .report_step = deps_.report_step}),
      teardown_({.loop = deps_.loop,
                 .launcher = deps_.launcher,
                 .links = deps_.links,
                 .abort_kill = deps_.limits.abort_kill},
                &ranks_),
      commands_(record),
      events_(deps_.event_files, record.assign().spec(),
              EventFileOf(record.assign(), *deps_.node)) {}

Allocation::~Allocation() = default;

const Assign& Allocation::assign() const { return record_->assign(); }
const std::string& Allocation::job_uid() const { return assign().job_uid(); }
int64_t Allocation::epoch() const { return assign().epoch(); }

bool Allocation::stops_with_agent() const {
  return assign().spec().resilience().on_agent_exit() ==
         megatrain::v1::Resilience::ON_AGENT_EXIT_STOP;
}

// The ranks run whether or not this succeeds; only a later agent would lack what is new in it.
void Allocation::Save() {
  commands_.FillRecord(record_.get());
  const Status saved = deps_.store->Save(*record_);
  if (!saved.ok()) {
    log::Warn("the record of a job's ranks cannot be written",
              {{"job", job_uid()}, {"why", base::Message(saved)}});
  }
}

void Allocation::StartRanks() {
  stalls_.Start();
  for (LocalRank& rank : ranks_.all()) {
    rank.launch = deps_.next_launch();
    const RankLaunch launch{.job_uid = job_uid(),
                            .epoch = epoch(),
                            .rank = rank.rank,
                            .slot = rank.slot,
                            .threads = std::max(1, assign().threads_per_rank()),
                            .folder = rank.folder,
                            .log_file = rank.log_file,
                            .token = rank.token,
                            .stop_with_agent = stops_with_agent(),
                            .gpu = rank.gpu,
                            .cpus = deps_.slots->CpusOf(rank.slot)};
    const Status started = deps_.launcher->Start(rank.launch, launch);
    if (started.ok()) {
      ReportState(rank);
      continue;
    }
    // Posted, because every other end comes from the loop, too: the caller has not finished yet.
    deps_.loop->Post([this, launch_id = rank.launch, error = base::Message(started)] {
      OnRankGone(launch_id, RankExit{.known = false, .error = error});
    });
  }
}

void Allocation::AdoptRanks(const std::string& damage) {
  for (LocalRank& rank : ranks_.all()) {
    rank.state = RankState::UNKNOWN;  // until it calls
    rank.launch = deps_.next_launch();
    rank.pid = deps_.launcher->Adopt(rank.launch, rank.folder);
    stalls_.OnState(rank);
  }
  stalls_.Start();
  // A damaged record may name no ranks; then nothing would ever report an end.
  if (ranks_.all().empty()) deps_.loop->Post([this] { BecomeGoneIfAllAre(); });
  if (!damage.empty()) {
    End(damage, /*asked=*/false);
  } else if (record_->ending()) {
    End(record_->end_reason(), record_->end_asked());
  } else if (stops_with_agent()) {
    End("its worker agent ended, and the job says on_agent_exit: stop", /*asked=*/false);
  }
}

Status Allocation::Attach(LinkId link, const RankHello& hello) {
  ASSIGN_OR_RETURN(LocalRank* const rank, ranks_.Attach(link, hello));
  stalls_.OnState(*rank);
  deps_.links->Send(link, AssignmentMessage(assign(), *deps_.node));
  relay_.RepeatAck(*rank);
  teardown_.OnAttach(*rank);
  if (rank->rank == 0) {
    for (const AgentMessage& command : commands_.Messages()) deps_.links->Send(link, command);
  }
  ReportState(*rank);
  return OkStatus();
}

void Allocation::OnLinkClosed(LinkId link) {
  if (LocalRank* rank = ranks_.FindByLink(link)) rank->link = kNoLink;
}

void Allocation::OnRankMessage(LinkId link, const RankMessage& message) {
  LocalRank* rank = ranks_.FindByLink(link);
  if (rank == nullptr) return;
  switch (message.body_case()) {
    case RankMessage::kState:
      rank->state = message.state().state();
      rank->step = std::max(rank->step, message.state().step());
      stalls_.OnState(*rank);
      ReportState(*rank);
      break;
    case RankMessage::kBeat:
      rank->step = std::max(rank->step, message.beat().step());
      stalls_.OnBeat(*rank, message.beat());
      break;
    case RankMessage::kFault: {
      NoteFault(rank, message);
      const bool own = rank->fault.exit_code != control::kExitTransient;
      Abort(
          fmt::format("rank {} {}: {}", rank->rank, own ? "failed" : "left", rank->fault.message));
      break;
    }
    case RankMessage::kStep:
    case RankMessage::kJobReport:
    case RankMessage::kCommandDone:
      Forward(rank, message);
      break;
    default:
      break;
  }
}

// The relay may outlive none of its reports: this object goes only when AllocationGone, its last
// report, is acknowledged.
void Allocation::Forward(LocalRank* rank, const RankMessage& message) {
  if (!relay_.Forward(rank, message)) return;
  if (rank->rank == 0) events_.OnMessage(message, base::ToUnixMicros(deps_.clock->WallNow()));
  if (message.has_command_done() && commands_.Done(message.command_done().command_id())) Save();
}

// Handled as if the rank had sent it, but for a fault, which is judged together with the exit.
void Allocation::TakeUnsent(LocalRank* rank, const std::string& bytes) {
  const bool whole = ReadUnsent(bytes, [this, rank](const RankMessage& message) {
    if (message.has_step() || message.has_job_report() || message.has_command_done()) {
      Forward(rank, message);
    } else if (message.has_fault()) {
      NoteFault(rank, message);
    }
  });
  if (!whole) {
    log::Warn("the end of a rank's unsent messages cannot be read",
              {{"job", job_uid()}, {"rank", rank->rank}});
  }
}

void Allocation::NoteFault(LocalRank* rank, const RankMessage& message) {
  rank->fault = {.cause = message.fault().cause(),
                 .message = message.fault().message(),
                 .exit_code = message.fault().exit_code(),
                 .reason = message.fault().reason(),
                 .fence_epoch = message.fault().fence_epoch()};
  log::Warn("a rank reports a fault", {{"job", job_uid()},
                                       {"rank", rank->rank},
                                       {"exit_code", rank->fault.exit_code},
                                       {"why", rank->fault.message}});
  faults_.OnFault(*rank);
}

void Allocation::OnRankGone(LaunchId launch, const RankExit& exit) {
  LocalRank* rank = ranks_.FindByLaunch(launch);
  if (rank == nullptr || rank->gone) return;
  TakeUnsent(rank, exit.unsent);
  rank->gone = true;
  rank->link = kNoLink;
  rank->exit = exit;
  rank->exit.unsent.clear();
  rank->killed_by_agent = rank->killed_by_agent || exit.stopped;
  const control::RankExitMeaning meaning = control::MeaningOfExit(exit.known ? exit.code : 0);
  if (meaning.slot_is_done && deps_.slot_done != nullptr) {
    deps_.slot_done(rank->slot, fmt::format("rank {} of job {} ended with exit code {} ({})",
                                            rank->rank, job_uid(), meaning.code, meaning.text));
  }
  const FaultAttribution::Outcome outcome = faults_.OnExit(*rank, stalls_.WhereItStood(*rank));
  for (const RankConclusion& conclusion : outcome.conclusions) ReportConclusion(conclusion);
  if (!outcome.abort_reason.empty()) Abort(outcome.abort_reason);
  BecomeGoneIfAllAre();
}

Status Allocation::PassCommand(const Command& command) {
  const LocalRank* zero = ranks_.Find(0);
  if (zero == nullptr) {
    return base::FailedPrecondition("rank 0 of job {} is not on this node", job_uid());
  }
  if (zero->gone) return base::FailedPrecondition("rank 0 of job {} has ended", job_uid());
  const auto message = commands_.Add(command);
  if (message == nullptr) return OkStatus();
  Save();
  if (zero->link != kNoLink) deps_.links->Send(zero->link, *message);
  return OkStatus();
}

void Allocation::Abort(const std::string& reason) {
  stalls_.Stop();
  teardown_.Abort(reason);
}

void Allocation::End(const std::string& reason, bool asked) {
  if (!faults_.ending()) {
    record_->set_ending(true);
    record_->set_end_asked(asked);
    record_->set_end_reason(reason);
    Save();
    faults_.OnEnd(reason, asked);
    stalls_.Stop();
  }
  teardown_.End(reason);
}

void Allocation::BecomeGoneIfAllAre() {
  if (!ranks_.AllGone()) return;
  for (const RankConclusion& conclusion : faults_.OnAllGone()) ReportConclusion(conclusion);
  teardown_.Finish();
  stalls_.Stop();
  const std::vector<std::string> gpus = ranks_.Gpus();
  if (gpus.empty()) return BecomeGone();
  // `this` stays valid: the allocation goes only when AllocationGone, sent from there, is
  // acknowledged.
  deps_.await_free(gpus, [this] { BecomeGone(); });
}

void Allocation::BecomeGone() {
  gone_ = true;
  events_.Close();
  WorkerMessage message;
  message.mutable_allocation_gone()->set_job_uid(job_uid());
  message.mutable_allocation_gone()->set_epoch(epoch());
  deps_.report(std::move(message), [this] { deps_.loop->Post(deps_.on_settled); });
  deps_.loop->Post(deps_.on_gone);
}

void Allocation::ReportConclusion(const RankConclusion& conclusion) {
  LocalRank& rank = *ranks_.Find(conclusion.rank);
  rank.state = conclusion.at_fault ? RankState::FAULTED : RankState::DONE;
  rank.final_message = conclusion.message;
  WorkerMessage message;
  auto& report = *message.mutable_rank_report();
  report.set_job_uid(job_uid());
  report.set_epoch(epoch());
  rank.end_reported = rank.gone;
  FillStatus(rank, report.mutable_status());
  report.set_fence_epoch(conclusion.fence_epoch);
  if (conclusion.at_fault) {
    report.set_cause(conclusion.cause);
    report.set_reason(rank.fault.reason);
    for (std::string& line : LastLines(rank.log_file, deps_.limits.fault_log_lines)) {
      report.add_last_log_lines(std::move(line));
    }
    log::Warn("a rank has failed", {{"job", job_uid()},
                                    {"epoch", control::EpochText(epoch())},
                                    {"rank", rank.rank},
                                    {"why", conclusion.message}});
  }
  deps_.report(std::move(message), {});
}

void Allocation::ReportState(const LocalRank& rank) {
  WorkerMessage message;
  message.mutable_rank_report()->set_job_uid(job_uid());
  message.mutable_rank_report()->set_epoch(epoch());
  FillStatus(rank, message.mutable_rank_report()->mutable_status());
  deps_.report(std::move(message), {});
}

void Allocation::FillStatus(const LocalRank& rank, megatrain::v1::RankStatus* status) const {
  RankSet::Describe(rank, status);
  stalls_.Describe(rank, status);
}

void Allocation::Describe(megatrain::v1::HeldAllocation* out) const {
  out->set_job_uid(job_uid());
  out->set_epoch(epoch());
  out->set_world_size(assign().world_size());
  out->set_job_name(assign().spec().name());
  for (const LocalRank& rank : ranks_.all()) FillStatus(rank, out->add_ranks());
}

}  // namespace mt::node
