// How ranks end: faults, exits, who is at fault, and the end of all of them (allocation.h).
#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "worker/node/process/log_file.h"
#include "worker/node/ranks/allocation.h"
#include "worker/node/ranks/allocation_rank.h"
#include "worker/node/shim/rank_exit_codes.h"

namespace mt::node {

using megatrain::v1::AgentMessage;
using megatrain::v1::RankMessage;
using megatrain::v1::RankReport;
using megatrain::v1::RankState;
using megatrain::v1::WorkerMessage;

void Allocation::NoteFault(Rank* rank, const RankMessage& message) {
  rank->fault = {.cause = message.fault().cause(),
                 .message = message.fault().message(),
                 .exit_code = message.fault().exit_code()};
  log::Warn("a rank reports a fault", {{"job", job_uid()},
                                       {"rank", rank->rank},
                                       {"exit_code", rank->fault.exit_code},
                                       {"why", rank->fault.message}});
  const bool own = rank->fault.exit_code != kExitTransient;
  if (own && culprit_ < 0 && !ending_) culprit_ = rank->rank;
}

void Allocation::OnFault(Rank* rank, const RankMessage& message) {
  NoteFault(rank, message);
  const bool own = rank->fault.exit_code != kExitTransient;
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
    record_->set_ending(true);
    record_->set_end_asked(asked);
    record_->set_end_reason(reason);
    Save();
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
  TakeUnsent(rank, exit.unsent);
  rank->gone = true;
  rank->link = kNoLink;
  rank->exit = exit;
  rank->exit.unsent.clear();
  rank->killed_by_agent = rank->killed_by_agent || exit.stopped;
  Classify(rank);
  BecomeGoneIfAllAre();
}

// Decides what the end of this rank means, reports it or lets the report wait (see the header).
void Allocation::Classify(Rank* rank) {
  rank->verdict = JudgeExit(rank->exit, rank->fault);
  if (!rank->verdict.clean) rank->verdict.message += WhereItStood(*rank);
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
  deps_.loop->Cancel(kill_timer_);
  deps_.loop->Cancel(std::exchange(look_timer_, EventLoop::kNoTimer));
  std::vector<std::string> gpus;
  for (const auto& rank : ranks_) {
    if (!rank->gpu.empty()) gpus.push_back(rank->gpu);
  }
  if (gpus.empty()) return BecomeGone();
  // This lives until AllocationGone, which follows from here, is acknowledged.
  deps_.await_free(gpus, [this] { BecomeGone(); });
}

void Allocation::BecomeGone() {
  gone_ = true;
  WorkerMessage message;
  message.mutable_allocation_gone()->set_job_uid(job_uid());
  message.mutable_allocation_gone()->set_epoch(epoch());
  deps_.report(std::move(message), [this] { deps_.loop->Post(deps_.on_settled); });
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
    for (std::string& line : LastLines(rank->log_file, deps_.limits.fault_log_lines)) {
      report.add_last_log_lines(std::move(line));
    }
    log::Warn("a rank has failed",
              {{"job", job_uid()}, {"epoch", epoch()}, {"rank", rank->rank}, {"why", text}});
  }
  deps_.report(std::move(message), {});
}

}  // namespace mt::node
