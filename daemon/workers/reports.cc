// One function per kind of report, behind the message fence.
#include "daemon/workers/reports.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "daemon/feeds/feeds.h"
#include "daemon/jobs/job_states.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/jobs/verdict.h"
#include "daemon/keeper/allocations.h"
#include "daemon/keeper/checkpoints.h"
#include "daemon/keeper/closed.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/job_run.h"
#include "daemon/keeper/stalls.h"
#include "daemon/workers/held_check.h"
#include "daemon/workers/orphans.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

v1::StoredJob* Reports::Fence(WorkerSession& from, const JobEpoch& key) {
  v1::StoredJob* job = parts_.ledger->FindJob(key.job_uid);
  const v1::StoredAllocation* allocation =
      parts_.ledger->FindAllocation({key.job_uid, key.epoch, from.node});
  if (job != nullptr && job->job().epoch() == key.epoch && !IsFinal(job->job().state()) &&
      allocation != nullptr && allocation->state() != v1::ORPHANED) {
    return job;
  }
  ++num_fenced_;
  // It is answered once per session: a rank that trains on would else be answered at every step.
  if (!from.told_off.insert(key).second) return nullptr;
  const std::string epoch = control::EpochText(key.epoch);
  if (IsClosed(parts_.ledger, {key.job_uid, key.epoch, from.node})) {
    log::Warn("message of a closed epoch",
              {{"node", from.node}, {"job_uid", key.job_uid}, {"epoch", epoch}});
    parts_.keeper->commands().SendKill(key, from.node, "this epoch is closed");
  } else if (allocation == nullptr) {
    log::Warn("message of an epoch that is not known",
              {{"node", from.node}, {"job_uid", key.job_uid}, {"epoch", epoch}});
    AskForHeld(parts_.hub, from.node, /*with_assign=*/true);
  }
  return nullptr;
}

void Reports::NoteEnd(const AllocationKey& key, const v1::RankStatus& status) {
  v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
  if (allocation == nullptr || !status.exited()) return;
  while (allocation->ended_size() < allocation->ranks_size()) allocation->add_ended(false);
  for (int i = 0; i < allocation->ranks_size(); ++i) {
    if (allocation->ranks(i) == status.rank()) allocation->set_ended(i, true);
  }
  parts_.ledger->MarkAllocation(*allocation);
}

void Reports::CountMalformed(const WorkerSession& from, std::string_view what) {
  ++num_malformed_;
  log::Warn("malformed report", {{"node", from.node}, {"what", what}});
}

bool Reports::HostsRankZero(const WorkerSession& from, const v1::StoredJob& job,
                            std::string_view what) {
  if (!job.job().ranks().empty() && job.job().ranks(0).node() == from.node) return true;
  CountMalformed(from, what);
  return false;
}

void Reports::OnAssignmentReply(WorkerSession& from, const v1::AssignmentReply& reply) {
  v1::StoredJob* job = Fence(from, {reply.job_uid(), reply.epoch()});
  if (job == nullptr) return;
  const AllocationKey key{reply.job_uid(), reply.epoch(), from.node};
  v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
  if (reply.accepted()) {
    parts_.keeper->placement().AllocationAccepted(*job, *allocation);
  } else if (allocation->state() == v1::RESERVED || allocation->state() == v1::FREEING) {
    parts_.keeper->placement().AllocationRefused(*job, key, reply.reason());
  }
}

void Reports::TakeRankStatus(v1::StoredJob& stored, const std::string& node,
                             const v1::RankStatus& status) {
  v1::Job* job = stored.mutable_job();
  if (status.rank() < 0 || status.rank() >= job->ranks_size()) return;
  v1::RankStatus* known = job->mutable_ranks(status.rank());
  if (known->node() != node || !RankMayMove(known->state(), status.state())) return;
  const int slot = known->slot();
  const std::string gpu = known->gpu();
  const v1::RankStatus before = *known;
  *known = status;
  known->set_node(node);
  known->set_slot(slot);
  known->set_gpu(gpu);
  v1::StoredAllocation* allocation =
      parts_.ledger->FindAllocation({job->uid(), job->epoch(), node});
  if (allocation != nullptr && allocation->state() == v1::ACCEPTED) {
    MoveAllocation(parts_.ledger, *allocation, v1::ACTIVE);
  }
  parts_.ledger->MarkJob(stored, Change::kRanks);
  NoteStall(parts_.ledger, stored, status.rank(), before);
}

void Reports::OnRank(WorkerSession& from, const v1::RankReport& report) {
  const v1::RankStatus& status = report.status();
  const AllocationKey key{report.job_uid(), report.epoch(), from.node};
  NoteEnd(key, status);
  v1::StoredJob* stored = Fence(from, {key.job_uid, key.epoch});
  if (stored == nullptr) return parts_.orphans->TakeStatus(key, status);
  if (status.rank() < 0 || status.rank() >= stored->job().ranks_size() ||
      stored->job().ranks(status.rank()).node() != from.node) {
    CountMalformed(from, "rank that is not of this node");
    return;
  }
  const v1::RankState before = stored->job().ranks(status.rank()).state();
  // UNKNOWN and FENCED are what the coordinator thinks of a rank that it does not hear.
  if (status.state() == v1::UNKNOWN || status.state() == v1::FENCED ||
      !RankMayMove(before, status.state())) {
    CountMalformed(from,
                   fmt::format("rank {} from {} to {}", status.rank(), v1::RankState_Name(before),
                               v1::RankState_Name(status.state())));
    return;
  }
  TakeRankStatus(*stored, from.node, status);
  if (IsFailure(report)) {
    if (parts_.keeper->bases().Missing(*stored, report)) return;
    v1::RankReport named = report;
    named.mutable_status()->set_node(from.node);
    parts_.keeper->verdicts().RankFailed(*stored, from.node, JudgeRank(named));
    return;
  }
  parts_.keeper->placement().RanksMoved(*stored, /*training=*/false);
  if (status.rank() == 0 && !RankIsReady(before) && RankIsReady(status.state()))
    parts_.keeper->commands().Send(*stored);
}

void Reports::OnSteps(WorkerSession& from, const v1::StepsReport& report) {
  v1::StoredJob* stored = Fence(from, {report.job_uid(), report.epoch()});
  if (stored == nullptr) {
    if (parts_.orphans->Contains({report.job_uid(), report.epoch(), from.node}))
      parts_.feeds->KeepOrphanSteps(report);
    return;
  }
  if (!HostsRankZero(from, *stored, "steps")) return;
  if (report.steps().empty()) return;
  parts_.keeper->placement().RanksMoved(*stored, /*training=*/true);
  v1::Job* job = stored->mutable_job();
  bool first = false;
  for (v1::StepRecord step : report.steps()) {
    step.set_epoch(report.epoch());
    if (!parts_.feeds->AddStep(*job, step)) continue;
    if (!job->has_first_step()) {
      first = true;
      *job->mutable_first_step() = step;
      job->set_started_us(step.time_us() != 0 ? step.time_us() : parts_.ledger->NowMicros());
    }
    job->set_skipped_steps(step.skipped_steps());
    *job->mutable_last_step() = std::move(step);
  }
  parts_.ledger->MarkJob(*stored, first ? Change::kRanks : Change::kProgress);
}

void Reports::OnReadings(const WorkerSession& from, const v1::RankReadings& readings) {
  const v1::StoredJob* stored = parts_.ledger->FindJob(readings.job_uid());
  if (stored == nullptr || stored->job().epoch() != readings.epoch()) return;
  if (!IsActive(stored->job().state())) return;
  parts_.feeds->ranks().Take(stored->job(), from.node, readings);
}

void Reports::TakeRunInfo(v1::Job* job, const v1::RunInfo& info) {
  job->set_total_steps(info.total_steps());
  job->set_resumed_from_step(info.resumed_from_step());
  job->set_checkpoint_path(info.checkpoint_path());
  job->set_parameters(info.parameters());
}

void Reports::OnJob(WorkerSession& from, const v1::JobReport& report) {
  v1::StoredJob* stored = Fence(from, {report.job_uid(), report.epoch()});
  if (stored == nullptr || !HostsRankZero(from, *stored, "job report")) return;
  if (report.rank_seq() != 0) {
    // The rank sends again what it does not know to be on disk, to whichever agent serves it.
    if (report.rank_seq() <= stored->rank_seq()) return;
    stored->set_rank_seq(report.rank_seq());
    parts_.ledger->MarkJob(*stored, Change::kProgress);
  }
  v1::Job* job = stored->mutable_job();
  switch (report.body_case()) {
    case v1::JobReport::kEval:
      parts_.feeds->AddEval(*job, report.eval());
      *job->mutable_last_eval() = report.eval();
      job->mutable_last_eval()->clear_samples();  // the history has them
      break;
    case v1::JobReport::kCheckpointSaved:
      return RecordCheckpoint(parts_.ledger, *stored, report.checkpoint_saved());
    case v1::JobReport::kCheckpointFailed:
      return RecordFailedSave(parts_.ledger, *stored, report.checkpoint_failed());
    case v1::JobReport::kCheckpointsDeleted:
      return ForgetCheckpoints(parts_.ledger, *stored, report.checkpoints_deleted());
    case v1::JobReport::kRunInfo:
      TakeRunInfo(job, report.run_info());
      RecordResumed(parts_.ledger, *stored, report.run_info());
      RecordRun(parts_.ledger, *stored, report.run_info());
      // Ranks from before runs had ids go on with none that is known.
      if (!report.run_info().run().id().empty()) parts_.feeds->AddRun(*job);
      parts_.keeper->bases().Started(*stored, report.run_info());
      break;
    case v1::JobReport::kActivity:
      return parts_.feeds->jobs().NoteActivity(*job, report.activity());
    case v1::JobReport::kSecondCopy:
      RecordSecondCopy(parts_.ledger, *stored, report.second_copy());
      break;
    case v1::JobReport::kBench:
      *job->mutable_bench() = report.bench();
      break;
    case v1::JobReport::kTrainingEnded:
      return parts_.keeper->verdicts().TrainingEnded(*stored, report.training_ended());
    case v1::JobReport::kCommandDone:
      if (!parts_.keeper->answers().Acted(*stored, report.command_done()))
        CountMalformed(from, "the answer to an unknown command");
      return;
    case v1::JobReport::BODY_NOT_SET:
      return CountMalformed(from, "job report without content");
  }
  parts_.ledger->MarkJob(*stored, Change::kState);
}

void Reports::OnCommandAck(WorkerSession& from, const v1::CommandAck& ack) {
  if (!parts_.keeper->answers().Acknowledged(ack.command_id(), from.node, ack.accepted(),
                                             ack.message()))
    CountMalformed(from, "the acknowledgement of an unknown command");
}

void Reports::SendValue(const std::string& node, const JobEpoch& job, const std::string& key,
                        const std::string& value) {
  v1::CoordinatorMessage message;
  v1::RendezvousValue* out = message.mutable_rendezvous_value();
  out->set_job_uid(job.job_uid);
  out->set_epoch(job.epoch);
  out->set_key(key);
  out->set_value(value);
  parts_.hub->Send(node, std::move(message));
}

void Reports::OnRendezvousSet(WorkerSession& from, const v1::RendezvousSet& set) {
  const JobEpoch key{set.job_uid(), set.epoch()};
  if (Fence(from, key) == nullptr) return;
  const auto waiting = parts_.rendezvous->Set(key, set.key(), set.value());
  if (!waiting.ok()) {
    CountMalformed(from, base::ToStd(waiting.status().message()));
    return;
  }
  parts_.ledger->PutRendezvous(key, set.key(), set.value());
  for (const std::string& node : *waiting) SendValue(node, key, set.key(), set.value());
}

void Reports::OnRendezvousGet(WorkerSession& from, const v1::RendezvousGet& get) {
  const JobEpoch key{get.job_uid(), get.epoch()};
  if (Fence(from, key) == nullptr) return;
  const std::string* value = parts_.rendezvous->Get(key, get.key(), from.node);
  if (value != nullptr) SendValue(from.node, key, get.key(), *value);
}

void Reports::OnAllocationGone(WorkerSession& from, const v1::AllocationGone& gone) {
  // This is taken of any epoch: slots of a closed one are freed this way.
  from.told_off.erase({gone.job_uid(), gone.epoch()});
  const AllocationKey key{gone.job_uid(), gone.epoch(), from.node};
  const v1::StoredJob* stored = parts_.ledger->FindJob(key.job_uid);
  const bool active =
      stored != nullptr && stored->job().epoch() == key.epoch && IsActive(stored->job().state());
  // Their end was reported to a store that is lost; the job is a phantom once all are gone.
  if (active && IsBeforeRestore(parts_.ledger, key.epoch))
    return parts_.keeper->teardown().AllocationForgotten(key);
  parts_.keeper->teardown().AllocationGone(key, "they ended without a report");
}

// An epoch that is about to end is open: its last save is what the fence is needed for. Where the
// answer is no, nothing else follows from the question: who closes an epoch ends its ranks.
void Reports::OnEpochQuery(const WorkerSession& from, const v1::EpochQuery& query) {
  const JobEpoch key{query.job_uid(), query.epoch()};
  v1::StoredAllocation* allocation =
      parts_.ledger->FindAllocation({key.job_uid, key.epoch, from.node});
  v1::CoordinatorMessage message;
  v1::EpochAnswer* answer = message.mutable_epoch_answer();
  answer->set_query_id(query.query_id());
  answer->set_job_uid(key.job_uid);
  answer->set_epoch(key.epoch);
  answer->set_open(allocation != nullptr && allocation->state() != v1::FREEING &&
                   IsOpen(parts_.ledger, *allocation));
  parts_.hub->Send(from.node, std::move(message));
}

}  // namespace mt::daemon
