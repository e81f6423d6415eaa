#include "worker/agent/allocation.h"

#include <algorithm>
#include <utility>

#include "common/base/ids.h"
#include "common/base/log.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"
#include "worker/agent/job_names.h"
#include "worker/agent/log_file.h"
#include "worker/agent/rank_verdict.h"
#include "worker/shim/rank_exit_codes.h"

namespace mt::agent {

using megatrain::v1::AgentMessage;
using megatrain::v1::Assign;
using megatrain::v1::Command;
using megatrain::v1::RankHello;
using megatrain::v1::RankMessage;
using megatrain::v1::RankReport;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;

struct Allocation::Rank {
  int rank = 0;
  int slot = 0;
  LaunchId launch = 0;
  std::string token;
  LinkId link = kNoLink;
  RankState state = RankState::SPAWNED;
  int64_t pid = 0;
  bool gone = false;
  bool reported_gone = false;
  bool killed_by_agent = false;
  RankExit exit;
  RankFaultReport fault;  // what it said of itself
  RankVerdict verdict;    // once gone
  std::string final_message;
};

struct Allocation::Word {
  std::string command_id;
  Command::Verb verb;
  std::string reason;
};

Allocation::Allocation(Deps deps, const Assign& assign)
    : deps_(std::move(deps)), assign_(std::make_unique<Assign>(assign)) {
  for (const auto& placement : assign.ranks()) {
    auto rank = std::make_unique<Rank>();
    rank->rank = placement.rank();
    rank->slot = placement.slot();
    rank->token = base::RandomHex(16);
    ranks_.push_back(std::move(rank));
  }
}

Allocation::~Allocation() { deps_.loop->Cancel(kill_timer_); }

const std::string& Allocation::job_uid() const { return assign_->job_uid(); }
int64_t Allocation::epoch() const { return assign_->epoch(); }

bool Allocation::UsesSlot(int slot) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [slot](const auto& rank) { return rank->slot == slot; });
}

std::string Allocation::LogFile(int rank) const {
  return RankLogFile(deps_.node->log_root, assign_->spec().name(), job_uid(), rank);
}

Allocation::Rank* Allocation::FindByLink(LinkId link) {
  for (const auto& rank : ranks_) {
    if (rank->link == link && link != kNoLink) return rank.get();
  }
  return nullptr;
}

Allocation::Rank* Allocation::FindByLaunch(LaunchId launch) {
  for (const auto& rank : ranks_) {
    if (rank->launch == launch) return rank.get();
  }
  return nullptr;
}

bool Allocation::HasLaunch(LaunchId launch) const {
  return const_cast<Allocation*>(this)->FindByLaunch(launch) != nullptr;
}
bool Allocation::HasLink(LinkId link) const {
  return const_cast<Allocation*>(this)->FindByLink(link) != nullptr;
}

void Allocation::StartRanks() {
  for (const auto& rank : ranks_) {
    rank->launch = deps_.next_launch();
    const RankLaunch launch{.job_uid = job_uid(),
                            .epoch = epoch(),
                            .rank = rank->rank,
                            .slot = rank->slot,
                            .threads = std::max(1, assign_->threads_per_rank()),
                            .folder = fmt::format("{}/{}-e{:04}-r{:05}", deps_.node->rank_state,
                                                  job_uid(), epoch(), rank->rank),
                            .log_file = LogFile(rank->rank),
                            .token = rank->token};
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

Status Allocation::Attach(LinkId link, const RankHello& hello) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&hello](const auto& rank) {
    return rank->rank == hello.rank();
  });
  if (found == ranks_.end() || (*found)->gone) {
    return base::FailedPrecondition("rank {} of job {} epoch {} does not run on this node",
                                    hello.rank(), job_uid(), epoch());
  }
  Rank& rank = **found;
  if (rank.token != hello.token()) {
    return base::FailedPrecondition("wrong token for rank {} of job {}", hello.rank(), job_uid());
  }
  rank.link = link;
  rank.pid = hello.pid();
  if (rank.state == RankState::SPAWNED) rank.state = RankState::CONNECTED;
  AgentMessage message;
  auto& assignment = *message.mutable_assignment();
  *assignment.mutable_spec() = assign_->spec();
  assignment.set_world_size(assign_->world_size());
  assignment.set_threads(std::max(1, assign_->threads_per_rank()));
  assignment.set_data_root(deps_.node->data_root);
  assignment.set_checkpoint_root(deps_.node->checkpoint_root);
  assignment.set_cache_root(deps_.node->cache_root);
  assignment.set_address(deps_.node->address);
  assignment.set_first_placement(epoch() <= 1);
  deps_.links->Send(link, message);
  if (aborting_) {
    message.mutable_exit()->set_reason(end_reason_);
    deps_.links->Send(link, message);
  }
  SendWords(rank);
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
      ReportState(*rank);
      break;
    case RankMessage::kJobReport: {
      WorkerMessage report;
      *report.mutable_job_report() = message.job_report();
      report.mutable_job_report()->set_job_uid(job_uid());
      report.mutable_job_report()->set_epoch(epoch());
      deps_.report(std::move(report));
      break;
    }
    case RankMessage::kFault:
      OnFault(rank, message);
      break;
    case RankMessage::kCommandDone:
      std::erase_if(words_, [&message](const auto& word) {
        return word->command_id == message.command_done().command_id();
      });
      break;
    default:  // beats need no answer
      break;
  }
}

Status Allocation::PassWord(const Command& command) {
  const auto zero =
      std::find_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->rank == 0; });
  if (zero == ranks_.end()) {
    return base::FailedPrecondition("rank 0 of job {} is not on this node", job_uid());
  }
  if ((*zero)->gone) return base::FailedPrecondition("rank 0 of job {} has ended", job_uid());
  const bool known = std::any_of(words_.begin(), words_.end(), [&command](const auto& word) {
    return word->command_id == command.command_id();
  });
  if (known) return OkStatus();
  words_.push_back(
      std::make_unique<Word>(Word{command.command_id(), command.verb(), command.reason()}));
  AgentMessage message;
  message.mutable_word()->set_command_id(command.command_id());
  message.mutable_word()->set_verb(command.verb());
  message.mutable_word()->set_reason(command.reason());
  if ((*zero)->link != kNoLink) deps_.links->Send((*zero)->link, message);
  return OkStatus();
}

void Allocation::SendWords(const Rank& rank) {
  if (rank.rank != 0) return;
  for (const auto& word : words_) {
    AgentMessage message;
    message.mutable_word()->set_command_id(word->command_id);
    message.mutable_word()->set_verb(word->verb);
    message.mutable_word()->set_reason(word->reason);
    deps_.links->Send(rank.link, message);
  }
}

void Allocation::OnFault(Rank* rank, const RankMessage& message) {
  rank->fault = {.cause = message.fault().cause(),
                 .message = message.fault().message(),
                 .exit_code = message.fault().exit_code()};
  log::Warn("a rank reports a fault", {{"job", job_uid()},
                                       {"rank", rank->rank},
                                       {"exit_code", rank->fault.exit_code},
                                       {"why", rank->fault.message}});
  const bool own = rank->fault.exit_code != shim::kExitTransient;
  if (own && culprit_ < 0 && !ending_) culprit_ = rank->rank;
  BeginAbort(
      fmt::format("rank {} {}: {}", rank->rank, own ? "failed" : "left", rank->fault.message));
}

void Allocation::BeginAbort(const std::string& reason) {
  if (aborting_ || ending_) return;
  aborting_ = true;
  end_reason_ = reason;
  AgentMessage message;
  message.mutable_exit()->set_reason(reason);
  for (const auto& rank : ranks_) {
    const bool told = rank->gone || rank->fault.exit_code != 0;
    if (!told && rank->link != kNoLink) deps_.links->Send(rank->link, message);
  }
  kill_timer_ = deps_.loop->After(deps_.limits.abort_kill, [this] {
    for (const auto& rank : ranks_) {
      if (rank->gone) continue;
      rank->killed_by_agent = true;
      deps_.launcher->Kill(rank->launch);
    }
  });
}

void Allocation::End(const std::string& reason, bool asked) {
  if (!ending_) {
    ending_ = true;
    end_asked_ = asked;
    end_reason_ = reason;
  }
  for (const auto& rank : ranks_) {
    if (rank->gone) continue;
    rank->killed_by_agent = true;
    deps_.launcher->Terminate(rank->launch);
  }
}

void Allocation::OnRankGone(LaunchId launch, const RankExit& exit) {
  Rank* rank = FindByLaunch(launch);
  if (rank == nullptr || rank->gone) return;
  rank->gone = true;
  rank->link = kNoLink;
  rank->exit = exit;
  Classify(rank);
  BecomeGoneIfAllAre();
}

// Decides what the end of this rank means, reports it or lets the report wait (see the header).
void Allocation::Classify(Rank* rank) {
  rank->verdict = JudgeExit(rank->exit, rank->fault);
  const std::string& how = rank->verdict.message;
  if (rank->verdict.clean) return ReportGone(rank, /*at_fault=*/false, "");
  if (culprit_ >= 0 && culprit_ != rank->rank) {
    return ReportGone(rank, false, fmt::format("ended after rank {} failed: {}", culprit_, how));
  }
  if (culprit_ < 0 && ending_) return ReportGone(rank, !end_asked_, end_reason_);
  if (culprit_ < 0 && (rank->killed_by_agent || rank->verdict.transient)) {
    return BeginAbort(fmt::format("rank {} left: {}", rank->rank, how));
  }
  culprit_ = rank->rank;
  ReportGone(rank, true, how);
  for (const auto& other : ranks_) {
    if (other->gone && !other->reported_gone) {
      ReportGone(other.get(), false,
                 fmt::format("ended after rank {} failed: {}", culprit_, other->verdict.message));
    }
  }
  BeginAbort(fmt::format("rank {} failed: {}", rank->rank, how));
}

void Allocation::BecomeGoneIfAllAre() {
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->gone; })) {
    return;
  }
  // No culprit here: those that lost their peers say so.
  for (const auto& rank : ranks_) {
    if (!rank->reported_gone) ReportGone(rank.get(), true, rank->verdict.message);
  }
  gone_ = true;
  deps_.loop->Cancel(kill_timer_);
  WorkerMessage message;
  message.mutable_allocation_gone()->set_job_uid(job_uid());
  message.mutable_allocation_gone()->set_epoch(epoch());
  deps_.report(std::move(message));
  deps_.loop->Post(deps_.on_gone);
}

void Allocation::ReportGone(Rank* rank, bool at_fault, const std::string& text) {
  rank->reported_gone = true;
  rank->state = at_fault ? RankState::FAULTED : RankState::DONE;
  rank->final_message = text;
  WorkerMessage message;
  RankReport& report = *message.mutable_rank_report();
  report.set_job_uid(job_uid());
  report.set_epoch(epoch());
  FillStatus(*rank, report.mutable_status());
  if (at_fault) {
    report.set_cause(ending_ && culprit_ < 0
                         ? megatrain::v1::INTERNAL
                         : static_cast<megatrain::v1::Cause>(rank->verdict.cause));
    for (std::string& line : LastLines(LogFile(rank->rank), deps_.limits.fault_log_lines)) {
      report.add_last_log_lines(std::move(line));
    }
    log::Warn("a rank has failed",
              {{"job", job_uid()}, {"epoch", epoch()}, {"rank", rank->rank}, {"why", text}});
  }
  deps_.report(std::move(message));
}

void Allocation::ReportState(const Rank& rank) {
  WorkerMessage message;
  message.mutable_rank_report()->set_job_uid(job_uid());
  message.mutable_rank_report()->set_epoch(epoch());
  FillStatus(rank, message.mutable_rank_report()->mutable_status());
  deps_.report(std::move(message));
}

void Allocation::FillStatus(const Rank& rank, megatrain::v1::RankStatus* status) const {
  status->set_rank(rank.rank);
  status->set_slot(rank.slot);
  status->set_state(rank.state);
  status->set_pid(rank.pid);
  status->set_exited(rank.gone);
  status->set_exit_code(rank.exit.code);
  status->set_exit_signal(rank.exit.signal);
  status->set_message(rank.final_message);
}

void Allocation::Describe(megatrain::v1::HeldAllocation* out) const {
  out->set_job_uid(job_uid());
  out->set_epoch(epoch());
  for (const auto& rank : ranks_) FillStatus(*rank, out->add_ranks());
}

}  // namespace mt::agent
