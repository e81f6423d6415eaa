// JobKeeper's second half: orders to workers, lost nodes, and the way from STOPPING to the final
// state.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "common/base/log.h"
#include "common/rpc/control_numbers.h"
#include "daemon/core/job_keeper.h"
#include "daemon/core/worker_hub.h"
#include "daemon/jobs/rank_states.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

constexpr std::string_view kKill = "kill";
constexpr std::string_view kStop = "stop";

// "kill/<job uid>/<epoch>": the same order has the same id, so sending it twice does it once.
std::string CommandId(std::string_view kind, const JobEpoch& job) {
  return fmt::format("{}/{}/{}", kind, job.job_uid, job.epoch);
}

bool ParseCommandId(std::string_view id, std::string_view* kind, JobEpoch* job) {
  const size_t first = id.find('/');
  const size_t second = id.rfind('/');
  if (first == std::string_view::npos || second == first) return false;
  *kind = id.substr(0, first);
  job->job_uid = id.substr(first + 1, second - first - 1);
  const std::string_view epoch = id.substr(second + 1);
  return std::from_chars(epoch.data(), epoch.data() + epoch.size(), job->epoch).ec == std::errc();
}

}  // namespace

void JobKeeper::SendKill(const JobEpoch& job, const std::string& node, std::string_view reason) {
  v1::CoordinatorMessage message;
  v1::Command* command = message.mutable_command();
  command->set_command_id(CommandId(kKill, job));
  command->set_job_uid(job.job_uid);
  command->set_epoch(job.epoch);
  command->set_verb(v1::Command::KILL);
  command->set_reason(std::string(reason));
  command->set_actor("coordinator");
  parts_.hub->Send(node, std::move(message));
}

void JobKeeper::SendStopWord(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  if (job.ranks().empty()) return;
  v1::CoordinatorMessage message;
  v1::Command* command = message.mutable_command();
  command->set_command_id(CommandId(kStop, {job.uid(), job.epoch()}));
  command->set_job_uid(job.uid());
  command->set_epoch(job.epoch());
  command->set_verb(stored.stop().with_save() ? v1::Command::STOP_WITH_SAVE
                                              : v1::Command::STOP_WITHOUT_SAVE);
  command->set_reason(stored.stop().reason());
  command->set_actor(stored.stop().actor());
  parts_.hub->Send(job.ranks(0).node(), std::move(message));
}

void JobKeeper::KillAll(v1::StoredJob& stored, std::string_view reason) {
  const JobEpoch current{stored.job().uid(), stored.job().epoch()};
  Runtime& runtime = runtime_[current.job_uid];
  runtime.killing = true;
  runtime.kill_again = parts_.clock->Now() + rpc::kAbortAllGone;
  for (v1::StoredAllocation* allocation : parts_.ledger->AllocationsOfJob(current.job_uid)) {
    if (allocation->epoch() != current.epoch || allocation->state() == v1::UNREACHABLE) continue;
    MoveAllocation(*allocation, v1::FREEING);
    SendKill(current, allocation->node(), reason);
  }
}

void JobKeeper::RemindNode(v1::StoredJob& stored, v1::StoredAllocation& allocation) {
  const v1::Job& job = stored.job();
  if (allocation.state() == v1::FREEING) {
    SendKill({allocation.job_uid(), allocation.epoch()}, allocation.node(), "stopping");
    return;
  }
  const bool stop_word = job.state() == v1::STOPPING && job.stopping_to() == v1::CANCELLED;
  if (stop_word && !job.ranks().empty() && job.ranks(0).node() == allocation.node())
    SendStopWord(stored);
}

void JobKeeper::CommandAnswered(const std::string& command_id, const std::string& node,
                                bool accepted, const std::string& message) {
  std::string_view kind;
  JobEpoch job;
  if (!ParseCommandId(command_id, &kind, &job)) return;
  v1::StoredJob* stored = parts_.ledger->FindJob(job.job_uid);
  if (kind == kKill) {
    if (stored != nullptr && stored->job().state() == v1::STOPPING) {
      runtime_[job.job_uid].kill_acked.insert(node);
    }
    // The agent knows no such ranks.
    if (!accepted) AllocationGone({job.job_uid, job.epoch, node}, message);
    return;
  }
  if (accepted || stored == nullptr || stored->job().state() != v1::STOPPING) return;
  parts_.ledger->AddEvent(
      {.type = "StopRefused", .message = message, .job_uid = job.job_uid, .node = node});
  KillAll(*stored, "the word to stop could not be given");
}

void JobKeeper::AllocationGone(const AllocationKey& key, std::string_view why) {
  const v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
  if (allocation == nullptr) return;
  const bool asked_for =
      allocation->state() == v1::FREEING || allocation->state() == v1::UNREACHABLE;
  parts_.ledger->EraseAllocation(key);
  v1::StoredJob* stored = parts_.ledger->FindJob(key.job_uid);
  if (stored == nullptr || stored->job().epoch() != key.epoch) return;
  const v1::Job& job = stored->job();
  if (!asked_for && IsActive(job.state())) {
    const bool others = !parts_.ledger->AllocationsOfJob(key.job_uid).empty();
    const bool done = std::ranges::all_of(job.ranks(), [&](const v1::RankStatus& rank) {
      return rank.node() != key.node || rank.state() == v1::DONE;
    });
    // Ranks that are done may be heard of before rank 0's word that training ended; the last one
    // may not.
    if (!done || !others) {
      Fail(*stored, {.cause = v1::INTERNAL,
                     .rank = -1,
                     .message = fmt::format("ranks on node {} are gone: {}", key.node, why)});
      return;
    }
  }
  FinishIfGone(*stored);
}

void JobKeeper::FinishIfGone(v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  if (job.state() != v1::STOPPING) return;
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOfJob(job.uid())) {
    // Of an unreachable node nothing can be heard; its slots stay taken until its agent is back.
    if (allocation->epoch() == job.epoch() && allocation->state() != v1::UNREACHABLE) return;
  }
  Apply(stored, JobEvent::kRanksGone, std::string(job.message()));
}

void JobKeeper::ReactToLoss(v1::StoredJob& stored, const std::string& node) {
  const v1::Job& job = stored.job();
  if (job.state() == v1::ADMITTED) {
    PlacementFailed(stored, fmt::format("node {} was lost", node));
    return;
  }
  for (v1::RankStatus& rank : *stored.mutable_job()->mutable_ranks()) {
    if (rank.node() == node && RankMayMove(rank.state(), v1::UNKNOWN)) rank.set_state(v1::UNKNOWN);
  }
  if (IsActive(job.state())) {
    Fail(stored, {.cause = v1::NETWORK,
                  .rank = -1,
                  .message = fmt::format(
                      "node {} is lost: no heartbeat for {} s", node,
                      std::chrono::duration_cast<rpc::seconds>(rpc::kWorkerLostAfter).count())});
    return;
  }
  FinishIfGone(stored);
}

void JobKeeper::NodeLost(const std::string& node) {
  parts_.ledger->AddEvent({.type = "NodeLost", .message = "no heartbeat", .node = node});
  for (v1::StoredAllocation* allocation : parts_.ledger->AllocationsOnNode(node)) {
    const JobEpoch key{allocation->job_uid(), allocation->epoch()};
    MoveAllocation(*allocation, v1::UNREACHABLE);
    v1::StoredJob* stored = parts_.ledger->FindJob(key.job_uid);
    if (stored != nullptr && stored->job().epoch() == key.epoch) ReactToLoss(*stored, node);
  }
}

void JobKeeper::SetNodeReachable(const std::string& node, bool reachable) {
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOnNode(node)) {
    v1::StoredJob* stored = parts_.ledger->FindJob(allocation->job_uid());
    if (stored == nullptr || IsFinal(stored->job().state()) ||
        stored->job().epoch() != allocation->epoch())
      continue;
    if (reachable) {
      if (!ClearCondition(stored->mutable_job(), "NodeUnreachable")) continue;
    } else {
      SetCondition(stored->mutable_job(), "NodeUnreachable",
                   fmt::format("no heartbeat from node {}", node), parts_.ledger->NowMicros());
    }
    parts_.ledger->MarkJob(*stored, Change::kState);
  }
}

void JobKeeper::Recover() {
  const base::MonotonicTime now = parts_.clock->Now();
  for (v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    Runtime& runtime = runtime_[stored->job().uid()];
    runtime.placement_deadline = now + rpc::kPlacementAnswer;
    runtime.stop_deadline = now + (stored->stop().with_save() ? rpc::kStopGrace : rpc::kStepLimit);
    runtime.kill_again = now + rpc::kAbortAllGone;
    for (const v1::StoredAllocation* allocation :
         parts_.ledger->AllocationsOfJob(stored->job().uid())) {
      runtime.killing |=
          stored->job().state() == v1::STOPPING && allocation->state() == v1::FREEING;
    }
    FinishIfGone(*stored);
  }
}

void JobKeeper::Tick() {
  const base::MonotonicTime now = parts_.clock->Now();
  for (v1::StoredJob* stored : parts_.ledger->LiveJobs()) {
    const v1::Job& job = stored->job();
    if (job.state() == v1::ADMITTED && now >= runtime_[job.uid()].placement_deadline) {
      PlacementFailed(*stored, fmt::format("an agent did not answer within {} s",
                                           rpc::kPlacementAnswer.count()));
    } else if (job.state() == v1::STOPPING) {
      const Runtime& runtime = runtime_[job.uid()];
      if (runtime.killing ? now >= runtime.kill_again : now >= runtime.stop_deadline) {
        KillAll(*stored, runtime.killing ? "still there" : "the time to stop is over");
        FinishIfGone(*stored);
      }
    }
  }
}

}  // namespace mt::daemon
