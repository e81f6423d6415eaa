#include "worker/node/ranks/allocation.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "worker/node/ranks/allocation_rank.h"
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

Allocation::Allocation(Deps deps, const AllocationRecord& record)
    : deps_(std::move(deps)), record_(std::make_unique<AllocationRecord>(record)), words_(record) {
  for (const auto& known : record.ranks()) {
    auto rank =
        std::make_unique<Rank>(Rank{.watch = ProgressWatch(LimitsOfJob(), deps_.clock->Now())});
    rank->rank = known.rank();
    rank->slot = known.slot();
    rank->gpu = known.gpu();
    rank->state = RankState::SPAWNED;
    rank->token = known.token();
    rank->log_file = known.log_file();
    ranks_.push_back(std::move(rank));
  }
}

Allocation::~Allocation() {
  deps_.loop->Cancel(kill_timer_);
  deps_.loop->Cancel(look_timer_);
}

const Assign& Allocation::assign() const { return record_->assign(); }
const std::string& Allocation::job_uid() const { return assign().job_uid(); }
int64_t Allocation::epoch() const { return assign().epoch(); }

bool Allocation::stops_with_agent() const {
  return assign().spec().resilience().on_agent_exit() ==
         megatrain::v1::Resilience::ON_AGENT_EXIT_STOP;
}

bool Allocation::UsesSlot(int slot) const {
  return !gone_ && std::any_of(ranks_.begin(), ranks_.end(),
                               [slot](const auto& rank) { return rank->slot == slot; });
}

bool Allocation::UsesGpu(const std::string& uuid) const {
  return !gone_ && std::any_of(ranks_.begin(), ranks_.end(),
                               [&uuid](const auto& rank) { return rank->gpu == uuid; });
}

std::string Allocation::FolderOf(const Rank& rank) const {
  return RankFolder(deps_.node->rank_state, job_uid(), epoch(), rank.rank);
}

Allocation::Rank* Allocation::FindByLink(LinkId link) const {
  for (const auto& rank : ranks_) {
    if (rank->link == link && link != kNoLink) return rank.get();
  }
  return nullptr;
}

Allocation::Rank* Allocation::FindByLaunch(LaunchId launch) const {
  for (const auto& rank : ranks_) {
    if (rank->launch == launch) return rank.get();
  }
  return nullptr;
}

bool Allocation::HasLaunch(LaunchId launch) const { return FindByLaunch(launch) != nullptr; }
bool Allocation::HasLink(LinkId link) const { return FindByLink(link) != nullptr; }
int Allocation::RankOf(LinkId link) const {
  const Rank* rank = FindByLink(link);
  return rank == nullptr ? -1 : rank->rank;
}

// Without it ranks run all the same; only a later agent would do without what is new in it.
void Allocation::Save() {
  words_.FillRecord(record_.get());
  const Status saved = deps_.store->Save(*record_);
  if (!saved.ok()) {
    log::Warn("the record of a job's ranks cannot be written",
              {{"job", job_uid()}, {"why", base::Message(saved)}});
  }
}

void Allocation::StartRanks() {
  LookAtProgress();
  for (const auto& rank : ranks_) {
    rank->launch = deps_.next_launch();
    const RankLaunch launch{.job_uid = job_uid(),
                            .epoch = epoch(),
                            .rank = rank->rank,
                            .slot = rank->slot,
                            .threads = std::max(1, assign().threads_per_rank()),
                            .folder = FolderOf(*rank),
                            .log_file = rank->log_file,
                            .token = rank->token,
                            .stop_with_agent = stops_with_agent(),
                            .gpu = rank->gpu,
                            .cpus = deps_.slots->CpusOf(rank->slot)};
    const Status started = deps_.launcher->Start(rank->launch, launch);
    if (started.ok()) {
      ReportState(*rank);
      continue;
    }
    // Told on the loop, like every other end: the caller is in the middle of its own work.
    deps_.loop->Post([this, launch_id = rank->launch, error = base::Message(started)] {
      OnRankGone(launch_id, RankExit{.known = false, .error = error});
    });
  }
}

void Allocation::AdoptRanks(const std::string& damage) {
  for (const auto& rank : ranks_) {
    rank->state = RankState::UNKNOWN;  // until it calls
    rank->launch = deps_.next_launch();
    rank->pid = deps_.launcher->Adopt(rank->launch, FolderOf(*rank));
    rank->watch.OnState(rank->state, deps_.clock->Now());
  }
  LookAtProgress();
  // A record that names no ranks: there is nothing to wait for.
  if (ranks_.empty()) deps_.loop->Post([this] { BecomeGoneIfAllAre(); });
  if (!damage.empty()) {
    End(damage, /*asked=*/false);
  } else if (record_->ending()) {
    End(record_->end_reason(), record_->end_asked());
  } else if (stops_with_agent()) {
    End("its worker agent ended, and the job says on_agent_exit: stop", /*asked=*/false);
  }
}

AgentMessage Allocation::AssignmentMessage() const {
  AgentMessage message;
  auto& assignment = *message.mutable_assignment();
  *assignment.mutable_spec() = assign().spec();
  assignment.set_world_size(assign().world_size());
  assignment.set_threads(std::max(1, assign().threads_per_rank()));
  assignment.set_data_root(deps_.node->data_root);
  assignment.set_checkpoint_root(deps_.node->checkpoint_root);
  assignment.set_cache_root(deps_.node->cache_root);
  assignment.set_address(deps_.node->address);
  assignment.set_first_placement(epoch() <= 1);
  *assignment.mutable_ended_job_uids() = assign().ended_job_uids();
  assignment.set_hold(assign().hold());
  return message;
}

Status Allocation::Attach(LinkId link, const RankHello& hello) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&hello](const auto& rank) {
    return rank->rank == hello.rank();
  });
  if (found == ranks_.end() || (*found)->gone) {
    return base::FailedPrecondition("rank {} of job {} epoch {} does not run on this node",
                                    hello.rank(), job_uid(), epoch());
  }
  Rank& rank = **found;
  // An empty token is one that nobody knows any more.
  if (rank.token.empty() || rank.token != hello.token()) {
    return base::FailedPrecondition("wrong token for rank {} of job {}", hello.rank(), job_uid());
  }
  rank.link = link;
  rank.pid = hello.pid();
  rank.step = std::max(rank.step, hello.step());
  if (hello.state() != RankState::RANK_STATE_UNSPECIFIED) {
    rank.state = hello.state();
  } else if (rank.state == RankState::SPAWNED || rank.state == RankState::UNKNOWN) {
    rank.state = RankState::CONNECTED;
  }
  rank.watch.OnState(rank.state, deps_.clock->Now());
  rank.stall.reset();
  deps_.links->Send(link, AssignmentMessage());
  if (rank.acked_seq > 0) OnAcknowledged(&rank, rank.acked_seq);  // the news may have been lost
  if (aborting_) {
    AgentMessage message;
    message.mutable_exit()->set_reason(end_reason_);
    deps_.links->Send(link, message);
  }
  if (rank.rank == 0) {
    for (const AgentMessage& word : words_.Messages()) deps_.links->Send(link, word);
  }
  ReportState(rank);
  return OkStatus();
}

void Allocation::OnLinkClosed(LinkId link) {
  if (Rank* rank = FindByLink(link)) rank->link = kNoLink;
}

void Allocation::OnRankMessage(LinkId link, const RankMessage& message) {
  Rank* rank = FindByLink(link);
  if (rank == nullptr) return;
  switch (message.body_case()) {
    case RankMessage::kState:
      rank->state = message.state().state();
      rank->step = std::max(rank->step, message.state().step());
      rank->watch.OnState(rank->state, deps_.clock->Now());
      rank->stall.reset();
      ReportState(*rank);
      break;
    case RankMessage::kBeat:
      rank->step = std::max(rank->step, message.beat().step());
      rank->watch.OnBeat(message.beat(), deps_.clock->Now());
      if (rank->stall) LookAtProgressOf(rank);
      break;
    case RankMessage::kFault:
      OnFault(rank, message);
      break;
    case RankMessage::kStep:
    case RankMessage::kJobReport:
    case RankMessage::kCommandDone:
      Forward(rank, message);
      break;
    default:
      break;
  }
}

void Allocation::Forward(Rank* rank, const RankMessage& message) {
  const int64_t seq = message.seq();
  if (seq > 0 && seq <= rank->forwarded_seq) return;  // it is on its way, or there
  rank->forwarded_seq = std::max(rank->forwarded_seq, seq);
  rank->step = std::max(rank->step, message.step().step());
  // This outlives its reports: it goes when its last one, AllocationGone, is acknowledged.
  ForwardBody(message, [this, rank, seq] { OnAcknowledged(rank, seq); });
  if (message.has_command_done() && words_.Done(message.command_done().command_id())) Save();
}

void Allocation::ForwardBody(const RankMessage& message, Outbox::Acked acked) {
  if (message.has_step()) return deps_.report_step(message.step(), std::move(acked));
  WorkerMessage report;
  auto& job_report = *report.mutable_job_report();
  if (message.has_job_report()) {
    job_report = message.job_report();
  } else {
    *job_report.mutable_command_done() = message.command_done();
  }
  job_report.set_job_uid(job_uid());
  job_report.set_epoch(epoch());
  job_report.set_rank_seq(message.seq());
  deps_.report(std::move(report), std::move(acked));
}

void Allocation::OnAcknowledged(Rank* rank, int64_t seq) {
  rank->acked_seq = std::max(rank->acked_seq, seq);
  if (rank->link == kNoLink || rank->acked_seq == 0) return;
  AgentMessage message;
  message.mutable_ack()->set_seq(rank->acked_seq);
  deps_.links->Send(rank->link, message);
}

// As if the rank had sent them; that it faulted is judged together with its exit.
void Allocation::TakeUnsent(Rank* rank, const std::string& bytes) {
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

Status Allocation::PassWord(const Command& command) {
  const auto zero =
      std::find_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->rank == 0; });
  if (zero == ranks_.end()) {
    return base::FailedPrecondition("rank 0 of job {} is not on this node", job_uid());
  }
  if ((*zero)->gone) return base::FailedPrecondition("rank 0 of job {} has ended", job_uid());
  const auto message = words_.Add(command);
  if (message == nullptr) return OkStatus();
  Save();
  if ((*zero)->link != kNoLink) deps_.links->Send((*zero)->link, *message);
  return OkStatus();
}

void Allocation::ReportState(const Rank& rank) {
  WorkerMessage message;
  message.mutable_rank_report()->set_job_uid(job_uid());
  message.mutable_rank_report()->set_epoch(epoch());
  FillStatus(rank, message.mutable_rank_report()->mutable_status());
  deps_.report(std::move(message), {});
}

void Allocation::FillStatus(const Rank& rank, megatrain::v1::RankStatus* status) const {
  status->set_rank(rank.rank);
  status->set_slot(rank.slot);
  status->set_gpu(rank.gpu);
  status->set_state(rank.state);
  status->set_pid(rank.pid);
  status->set_exited(rank.gone);
  status->set_exit_code(rank.exit.code);
  status->set_exit_signal(rank.exit.signal);
  status->set_message(rank.final_message);
  status->set_step(rank.step);
  if (rank.stall && !rank.gone) {
    FillStall(*rank.stall, rank.watch.mark(), status->mutable_stall());
  }
}

void Allocation::Describe(megatrain::v1::HeldAllocation* out) const {
  out->set_job_uid(job_uid());
  out->set_epoch(epoch());
  for (const auto& rank : ranks_) FillStatus(*rank, out->add_ranks());
}

}  // namespace mt::node
