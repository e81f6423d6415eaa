// The event is told after the job has the run, whose id it carries.
#include "daemon/keeper/job_run.h"

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

}  // namespace

void RecordRun(Ledger* ledger, v1::StoredJob& stored, const v1::RunInfo& info) {
  if (info.run().id().empty()) return;
  v1::Job* job = stored.mutable_job();
  const bool is_new = job->run().id() != info.run().id();
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
