// The event is told after the job has the run, whose id it carries.
#include "daemon/keeper/job_run.h"

#include <algorithm>
#include <vector>

#include "daemon/ledger/run_jobs.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

std::string RunText(const v1::RunInfo& info) {
  const v1::Run& run = info.run();
  std::string text = fmt::format("run {} ", run.id());
  if (!info.run_begins())
    return text + fmt::format("goes on from step {}", info.resumed_from_step());
  text += run.restart().empty() ? "begins" : "begins on purpose";
  if (!run.beginning().empty()) text += fmt::format(" ({})", run.beginning());
  if (!run.parent().empty())
    return text + fmt::format(": its checkpoints are copies of those of run {}", run.parent());
  if (run.from_digest().empty()) return text;
  text += fmt::format(" from step {}", run.from_step());
  return run.from_run().empty() ? text : text + fmt::format(" of run {}", run.from_run());
}

// Counts this start of the run, once.
int CountAttempt(Ledger* ledger, v1::StoredJob& stored, const std::string& run) {
  const int64_t epoch = stored.job().epoch();
  auto& runs = *stored.mutable_runs();
  const auto told = std::ranges::find(runs, run, &v1::EpochRun::run);
  if (told != runs.end() && told->epoch() == epoch) return told->attempt();
  const int attempt = NextAttempt(ledger, run);
  v1::EpochRun& one = told != runs.end() ? *told : *runs.Add();
  one.set_epoch(epoch);
  one.set_run(run);
  one.set_from_step(stored.job().resumed_from_step());
  one.set_attempt(attempt);
  return attempt;
}

// The newest checkpoint of that step in `job` that the run may have gone on from; nullptr: none.
const v1::CheckpointInfo* FindCheckpoint(const v1::Job& job, const v1::RunInfo& info) {
  const v1::CheckpointInfo* found = nullptr;
  for (const v1::CheckpointInfo& one : job.checkpoints()) {
    const bool its = one.run().empty() || info.run().id().empty() || one.run() == info.run().id() ||
                     one.run() == info.run().from_run();
    if (its && one.step() == info.resumed_from_step()) found = &one;
  }
  return found;
}

}  // namespace

void RecordResumed(Ledger* ledger, v1::StoredJob& stored, const v1::RunInfo& info) {
  v1::Job* job = stored.mutable_job();
  job->set_ready_us(ledger->NowMicros());
  if (info.resumed_from_step() == 0) {
    job->clear_resumed_checkpoint();
    return;
  }
  v1::CheckpointInfo found;
  found.set_step(info.resumed_from_step());
  for (const v1::StoredJob* other : ledger->Jobs()) {
    const bool related = other == &stored || HasTrained(*other, info.run().id()) ||
                         HasTrained(*other, info.run().from_run()) ||
                         (!info.checkpoint_path().empty() &&
                          other->job().checkpoint_path() == info.checkpoint_path());
    const v1::CheckpointInfo* one = related ? FindCheckpoint(other->job(), info) : nullptr;
    if (one != nullptr && one->time_us() >= found.time_us()) found = *one;
  }
  *job->mutable_resumed_checkpoint() = std::move(found);
}

void RecordRun(Ledger* ledger, v1::StoredJob& stored, const v1::RunInfo& info) {
  if (info.run().id().empty()) return;
  v1::Job* job = stored.mutable_job();
  const bool is_new = job->run().id() != info.run().id();
  // While the job is not yet one of the run that it begins.
  job->set_attempt(CountAttempt(ledger, stored, info.run().id()));
  *job->mutable_run() = info.run();
  if (is_new) {
    ledger->AddEvent({.type = info.run_begins() ? "RunBegan" : "RunContinued",
                      .message = RunText(info),
                      .job_uid = job->uid(),
                      .step = info.resumed_from_step()});
  }
  ledger->MarkJob(stored, Change::kState);
}

}  // namespace mt::daemon
