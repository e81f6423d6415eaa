// Operations as the ledger keeps them, and their events.
#include "daemon/keeper/operations.h"

#include "common/base/ids.h"
#include "common/rpc/reason.h"
#include "daemon/keeper/checkpoints.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

// "pause --hold", "cancel --checkpoint", "kill".
std::string VerbOf(const v1::Operation& operation) {
  if (operation.mode().empty()) return operation.verb();
  return fmt::format("{} --{}", operation.verb(), operation.mode());
}

}  // namespace

v1::Operation* OperationBook::Open(const v1::Job& job, const Opening& opening, const Order& order) {
  auto operation = std::make_unique<v1::Operation>();
  operation->set_name(fmt::format("operations/{}", base::NewUid()));
  operation->set_verb(opening.verb);
  operation->set_mode(opening.mode);
  operation->set_progress(opening.progress);
  operation->set_target(job.uid());
  operation->set_job(fmt::format("{}/{}", job.namespace_(), job.name()));
  operation->set_actor(order.actor);
  operation->set_reason(order.reason);
  operation->set_request_id(order.request_id);
  operation->set_created_us(ledger_->NowMicros());
  v1::Operation* kept = ledger_->AddOperation(std::move(operation));
  ledger_->AddEvent({.type = "OperationStarted",
                     .message = VerbOf(*kept),
                     .job_uid = job.uid(),
                     .actor = order.actor,
                     .reason = order.reason,
                     .operation = kept->name()});
  return kept;
}

v1::Operation* OperationBook::FindOpen(const v1::Job& job, std::string_view verb,
                                       std::string_view mode) {
  for (v1::Operation* operation : ledger_->OpenOperations(job.uid())) {
    if (operation->verb() == verb && (mode.empty() || operation->mode() == mode)) return operation;
  }
  return nullptr;
}

void OperationBook::Progress(v1::Operation& operation, std::string_view progress) {
  if (operation.progress() == progress) return;
  operation.set_progress(std::string(progress));
  ledger_->MarkOperation(operation);
}

void OperationBook::End(v1::Operation& operation, std::string_view event,
                        std::string_view message) {
  operation.set_done(true);
  operation.set_finished_us(ledger_->NowMicros());
  operation.clear_progress();
  ledger_->MarkOperation(operation);
  ledger_->AddEvent({.type = std::string(event),
                     .message = fmt::format("{}: {}", VerbOf(operation), message),
                     .job_uid = operation.target(),
                     .actor = operation.actor(),
                     .reason = operation.reason(),
                     .operation = operation.name(),
                     .step = operation.step(),
                     .word_step = operation.word_step()});
}

void OperationBook::Succeed(v1::Operation& operation, std::string_view result) {
  operation.set_result(std::string(result));
  End(operation, "OperationDone", result);
}

void OperationBook::Fail(v1::Operation& operation, const Status& status) {
  v1::Error* error = operation.mutable_error();
  error->set_code(static_cast<int>(status.code()));
  error->set_reason(rpc::ReasonOf(status));
  error->set_message(base::Message(status));
  End(operation, "OperationFailed", base::Message(status));
}

void OperationBook::Supersede(const v1::Job& job, const v1::Operation& newer) {
  for (v1::Operation* operation : ledger_->OpenOperations(job.uid())) {
    const bool gives_way = operation->verb() == "pause" || operation->verb() == "resume";
    if (!gives_way || operation->name() == newer.name()) continue;
    Fail(*operation,
         rpc::WithReason(base::Error(absl::StatusCode::kAborted, "'{}' by {} took its place ({})",
                                     VerbOf(newer), newer.actor(), newer.name()),
                         reason::kSuperseded));
  }
}

void OperationBook::EndAll(const v1::Job& job) {
  const std::string& state = v1::JobState_Name(job.state());
  for (v1::Operation* operation : ledger_->OpenOperations(job.uid())) {
    if (operation->verb() == "cancel" || operation->verb() == "kill") {
      Succeed(*operation, fmt::format("{} after step {}", state, job.last_step().step()));
      continue;
    }
    Fail(*operation,
         rpc::WithReason(base::FailedPrecondition("the job is {}: {}", state, job.message()),
                         reason::kJobEnded));
  }
}

void OperationBook::FailUnsaved(const v1::StoredJob& stored) {
  const v1::Job& job = stored.job();
  const int64_t saved = SavedStep(stored);
  std::string why;
  for (const v1::Condition& condition : job.conditions()) {
    if (condition.type() == "CheckpointStale") why = fmt::format(" ({})", condition.message());
  }
  for (v1::Operation* operation : ledger_->OpenOperations(job.uid())) {
    const bool saves = operation->mode() == "release" || operation->mode() == "checkpoint";
    if (!saves || operation->has_checkpoint()) continue;
    if (saved > 0) *operation->mutable_checkpoint() = job.last_checkpoint();
    Fail(
        *operation,
        rpc::WithReason(
            base::Error(
                absl::StatusCode::kInternal,
                "the ranks ended without their last save: trained to step {}, saved is {}{}",
                job.last_step().step(), saved > 0 ? fmt::format("step {}", saved) : "nothing", why),
            reason::kSaveFailed));
  }
}

void OperationBook::FailSaves(const v1::Job& job) { FailOwed(job, "checkpoint", "saved"); }

void OperationBook::FailProfiles(const v1::Job& job) {
  FailOwed(job, "profile", "traced the steps");
}

void OperationBook::FailDecodes(const v1::Job& job) {
  FailOwed(job, "decode", "written the texts");
}

void OperationBook::KeepTextsOf(const v1::Operation& newest) {
  for (v1::Operation* operation : ledger_->Operations()) {
    const bool gives_way = operation->target() == newest.target() &&
                           operation->name() != newest.name() &&
                           operation->decoded().texts_size() > 0;
    if (!gives_way) continue;
    operation->mutable_decoded()->clear_texts();
    operation->mutable_decoded()->set_left_out(true);
    ledger_->MarkOperation(*operation);
  }
}

void OperationBook::FailClosed(const v1::Job& job) {
  for (v1::Operation* operation : ledger_->OpenOperations(job.uid())) {
    if (operation->verb() != "checkpoint") continue;
    Fail(*operation,
         rpc::WithReason(base::FailedPrecondition("its ranks were lost before they had saved: {}; "
                                                  "ask again once the job runs",
                                                  job.message()),
                         reason::kEpochClosed));
  }
}

void OperationBook::FailOwed(const v1::Job& job, std::string_view verb, std::string_view what) {
  for (v1::Operation* operation : ledger_->OpenOperations(job.uid())) {
    if (operation->verb() != verb) continue;
    Fail(*operation,
         rpc::WithReason(base::FailedPrecondition("its ranks ended before they had {}: {}", what,
                                                  job.message()),
                         job.state() == v1::RECOVERING ? reason::kEpochClosed : reason::kJobEnded));
  }
}

}  // namespace mt::daemon
