// Checks what is asked for and opens the subscription; bounds are those of the tables below.
#include "daemon/api/streams_api.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/spec/job_kind.h"
#include "daemon/api/job_ref.h"
#include "daemon/api/run_sources.h"
#include "daemon/telemetry/run_history.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

constexpr int kDefaultLogLines = 100;
constexpr int kMaxLogLines = 100'000;
constexpr int kDefaultEvents = 1'000;
constexpr int kMaxEvents = 100'000;
constexpr int kMaxNames = 256;
constexpr std::array<int, 1> kRankZero = {0};

// Of the samples in one answer, which has nothing else of that size.
constexpr size_t kMaxSampleBytes = control::kMaxMessageBytes / 2;

// Leaves samples to the newest evaluations, as many as fit: the last one at least, which came as a
// message itself.
void DropOldSamples(std::vector<v1::EvalRecord>* evals) {
  size_t bytes = 0;
  for (auto eval = evals->rbegin(); eval != evals->rend(); ++eval) {
    bytes += eval->ByteSizeLong();
    if (bytes > kMaxSampleBytes && eval != evals->rbegin()) eval->clear_samples();
  }
}

void FillSamples(HistoryView view, v1::History* out) {
  DropOldSamples(&view.evals);
  for (v1::EvalRecord& eval : view.evals)
    if (eval.samples_size() > 0) *out->add_evals() = std::move(eval);
}

void FillHistory(HistoryView view, v1::History* out) {
  const HistoryTable& rows = view.rows;
  out->set_level(rows.level);
  out->mutable_steps()->Assign(rows.steps.begin(), rows.steps.end());
  out->mutable_times_us()->Assign(rows.times_us.begin(), rows.times_us.end());
  out->mutable_epochs()->Assign(rows.epochs.begin(), rows.epochs.end());
  for (const HistoryColumn& column : rows.columns) {
    v1::History::Column* to = out->add_columns();
    to->set_name(column.name);
    to->mutable_last()->Assign(column.last.begin(), column.last.end());
    to->mutable_min()->Assign(column.min.begin(), column.min.end());
    to->mutable_max()->Assign(column.max.begin(), column.max.end());
  }
  out->set_first_step(view.first_step);
  out->set_last_step(view.last_step);
  out->set_next_step(view.next_step);
  out->set_epoch(view.epoch);
  out->set_epoch_base(view.epoch_base);
  out->set_own_from_step(view.own_from_step);
  out->mutable_attempts()->Assign(view.attempts.begin(), view.attempts.end());
  for (v1::EvalRecord& eval : view.evals) *out->add_evals() = std::move(eval);
  for (v1::EpochRun& run : view.runs) *out->add_runs() = std::move(run);
}

}  // namespace

StatusOr<Followed<JobSubscription>> StreamsApi::WatchJob(const v1::GetJobRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(ledger_, request.job()));
  return Followed<JobSubscription>{job->job().uid(), feeds_->jobs().Watch(job->job())};
}

StatusOr<Followed<MetricsSubscription>> StreamsApi::WatchMetrics(
    const v1::StreamMetricsRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(ledger_, request.job()));
  const auto interval =
      std::chrono::milliseconds(std::clamp<int64_t>(request.min_interval_ms(), 0, 3'600'000));
  return Followed<MetricsSubscription>{
      job->job().uid(), feeds_->WatchMetrics(job->job(), request.since_step(), interval)};
}

StatusOr<Followed<LogSubscription>> StreamsApi::TailLogs(const v1::TailLogsRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* stored, FindJob(ledger_, request.job()));
  const v1::Job& job = stored->job();
  if (job.ranks().empty()) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is {} and has no logs: {}", job.name(),
                                 v1::JobState_Name(job.state()), job.message()),
        reason::kWrongState);
  }
  const std::set<int> asked(request.ranks().begin(), request.ranks().end());
  std::vector<int> ranks(asked.begin(), asked.end());
  if (asked.empty()) ranks.assign(1, 0);
  if (ranks.front() < 0 || ranks.back() >= job.ranks_size()) {
    return rpc::WithReason(base::InvalidArgument("job '{}' has ranks 0 to {}, no rank {}",
                                                 job.name(), job.ranks_size() - 1,
                                                 ranks.front() < 0 ? ranks.front() : ranks.back()),
                           reason::kUnknownRank);
  }
  const int lines =
      request.lines() <= 0 ? kDefaultLogLines : std::min(request.lines(), kMaxLogLines);
  return Followed<LogSubscription>{
      job.uid(),
      feeds_->TailLogs({.job = job, .ranks = ranks, .lines = lines, .follow = request.follow()})};
}

StatusOr<Followed<LogSubscription>> StreamsApi::ReadTrace(const v1::ReadTraceRequest& request) {
  const v1::Operation* const operation = ledger_->FindOperation(request.operation());
  if (operation == nullptr) {
    return rpc::WithReason(base::NotFound("there is no operation '{}'", request.operation()),
                           reason::kUnknownOperation);
  }
  if (!operation->has_profile()) {
    return rpc::WithReason(
        base::FailedPrecondition("{} has no trace: it is {}", operation->name(),
                                 operation->verb() != "profile" ? "no profile"
                                 : operation->done()            ? "a profile that failed"
                                                                : "a profile that is not over"),
        reason::kWrongState);
  }
  v1::JobRef ref;
  ref.set_uid(operation->target());
  ASSIGN_OR_RETURN(const v1::StoredJob* stored, FindJob(ledger_, ref));
  const v1::Job& job = stored->job();
  if (job.ranks().empty()) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' has no ranks now, so that nobody knows on which node "
                                 "its trace lies",
                                 job.name()),
        reason::kWrongState);
  }
  return Followed<LogSubscription>{job.uid(),
                                   feeds_->TailLogs({.job = job,
                                                     .ranks = kRankZero,
                                                     .lines = 0,
                                                     .follow = false,
                                                     .trace = operation->profile().trace()})};
}

StatusOr<Followed<LogSubscription>> StreamsApi::ReadOutput(const v1::ReadOutputRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* stored, FindJob(ledger_, request.job()));
  const v1::Job& job = stored->job();
  const spec::JobKind& kind = spec::KindOf(job.spec());
  if (!kind.reads) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is of kind {} and writes no text: it has logs",
                                 job.name(), kind.name),
        reason::kWrongKind);
  }
  if (request.offset() < 0) {
    return rpc::WithReason(base::InvalidArgument("offset {} of an output", request.offset()),
                           reason::kInvalidRequest);
  }
  if (job.ranks().empty()) {
    const std::string_view why = job.epoch() == 0
                                     ? "has written nothing"
                                     : "has no ranks now, so that nobody knows on which node its "
                                       "text lies";
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is {} and {}: {}", job.name(),
                                 v1::JobState_Name(job.state()), why, job.message()),
        reason::kWrongState);
  }
  return Followed<LogSubscription>{job.uid(), feeds_->TailLogs({.job = job,
                                                                .ranks = kRankZero,
                                                                .lines = 0,
                                                                .follow = request.follow(),
                                                                .output = true,
                                                                .offset = request.offset()})};
}

StatusOr<Followed<EventSubscription>> StreamsApi::WatchEvents(
    const v1::WatchEventsRequest& request) {
  std::string uid;
  if (request.has_job()) {
    ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(ledger_, request.job()));
    uid = job->job().uid();
  }
  if (request.since_seq() < 0 || request.limit() < 0) {
    return rpc::WithReason(base::InvalidArgument("since_seq and limit cannot be negative"),
                           reason::kInvalidRequest);
  }
  ASSIGN_OR_RETURN(
      auto subscription,
      events_->Watch(
          {.job_uid = uid,
           .since_seq = request.since_seq(),
           .limit = request.limit() == 0 ? kDefaultEvents : std::min(request.limit(), kMaxEvents),
           .follow = request.follow(),
           .types = {request.types().begin(), request.types().end()}}));
  return Followed<EventSubscription>{uid, std::move(subscription)};
}

Status StreamsApi::ReadRanks(const v1::ReadRanksRequest& request,
                             v1::ReadRanksResponse* response) const {
  const RankBoard& ranks = feeds_->ranks();
  if (!request.has_job()) {
    ranks.FillAll(response);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(ledger_, request.job()));
  ranks.Fill(job->job().uid(), response);
  return OkStatus();
}

StatusOr<StreamsApi::HistoryAnswer> StreamsApi::QueryHistory(
    const v1::QueryHistoryRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, FindJob(ledger_, request.job()));
  const bool backwards = request.to_step() != 0 && request.from_step() > request.to_step();
  if (request.from_step() < 0 || request.to_step() < 0 || request.since_us() < 0 ||
      request.points() < 0 || request.after_step() < 0 || request.limit() < 0 ||
      request.attempt() < 0 || request.names_size() > kMaxNames || backwards) {
    return rpc::WithReason(
        base::InvalidArgument(
            "steps {} to {}, since {}, {} points, {} names, {} after step {}, attempt {}: "
            "none may be negative, the range not backwards, the names at most {}",
            request.from_step(), request.to_step(), request.since_us(), request.points(),
            request.names_size(), request.limit(), request.after_step(), request.attempt(),
            kMaxNames),
        reason::kInvalidRequest);
  }
  const History* history = feeds_->history();
  ASSIGN_OR_RETURN(RunSources sources, FindRunSources(ledger_, *job, request.attempt()));
  return HistoryAnswer([history, sources = std::move(sources), request](v1::History* out) {
    if (history == nullptr) return;
    const std::vector<std::string> names(request.names().begin(), request.names().end());
    if (request.samples()) {
      FillSamples(QueryRun(*history, sources,
                           {.from_step = request.from_step(),
                            .to_step = request.to_step(),
                            .since_us = request.since_us(),
                            .points = 1,
                            .samples = true}),
                  out);
      return;
    }
    if (request.limit() > 0) {
      FillHistory(WalkRun(*history, sources,
                          {.after_step = request.after_step(),
                           .from_step = request.from_step(),
                           .to_step = request.to_step(),
                           .since_us = request.since_us(),
                           .limit = request.limit(),
                           .names = names}),
                  out);
      return;
    }
    FillHistory(QueryRun(*history, sources,
                         {.from_step = request.from_step(),
                          .to_step = request.to_step(),
                          .since_us = request.since_us(),
                          .points = request.points(),
                          .names = names}),
                out);
  });
}

}  // namespace mt::daemon
