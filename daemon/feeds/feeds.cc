// Watchers of jobs, readers of steps with the history before them, and requests for logs.
#include "daemon/feeds/feeds.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/control/numbers.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/jobs/job_states.h"
#include "daemon/telemetry/history.h"
#include "megatrain/v1/types.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

// A job's metrics stay so long after its end (T2).
constexpr std::chrono::minutes kKeptAfterEnd{5};
// A stream reads so many steps of the history at a time.
constexpr size_t kPastSteps = 4'096;

std::shared_ptr<const v1::LogChunk> EndChunk(int rank, const std::string& error) {
  auto chunk = std::make_shared<v1::LogChunk>();
  chunk->set_rank(rank);
  chunk->set_end(true);
  chunk->set_error(error);
  return chunk;
}

}  // namespace

void Feeds::PublishJob(const v1::Job& job) {
  jobs_.Publish(job);
  ranks_.Publish(job);
  if (!IsFinal(job.state())) return;
  if (history_ != nullptr) history_->Close(job.uid());
  const auto steps = steps_.find(job.uid());
  if (steps == steps_.end()) return;
  steps->second.feed.Close(OkStatus());
  steps->second.drop_at = clock_->Now() + kKeptAfterEnd;
}

StepFeed& Feeds::StepsOf(const v1::Job& job) {
  const auto [it, is_new] = steps_.try_emplace(job.uid());
  StepFeed& feed = it->second.feed;
  if (!is_new) return feed;
  feed.CountDropped(&dropped_);
  // The history may be ahead of the store, never behind it while its disk works.
  std::pair<int64_t, int64_t> newest(job.last_step().epoch(), job.last_step().step());
  if (history_ != nullptr) {
    const History::Newest held = history_->NewestOf(job.uid());
    newest = std::max(newest, {held.epoch, held.step});
  }
  feed.ResumeAfter(newest.first, newest.second);
  return feed;
}

const StepFeed* Feeds::FindSteps(const std::string& uid) const {
  const auto it = steps_.find(uid);
  return it == steps_.end() ? nullptr : &it->second.feed;
}

bool Feeds::AddStep(const v1::Job& job, const v1::StepRecord& step) {
  StepFeed& feed = StepsOf(job);  // before the history knows the step
  if (history_ != nullptr) history_->Append(job.uid(), step);
  feed.AddStep(step, clock_->Now());
  const v1::StepRecord& last = job.last_step();
  return std::pair(step.epoch(), step.step()) > std::pair(last.epoch(), last.step());
}

void Feeds::AddEval(const v1::Job& job, const v1::EvalRecord& eval) {
  StepFeed& feed = StepsOf(job);
  if (history_ != nullptr) history_->AppendEval(job.uid(), eval);
  feed.AddEval(eval);
}

void Feeds::AddRun(const v1::Job& job) {
  if (history_ == nullptr || job.run().id().empty()) return;
  v1::EpochRun run;
  run.set_epoch(job.epoch());
  run.set_run(job.run().id());
  run.set_from_step(job.resumed_from_step());
  run.set_attempt(job.attempt());
  history_->AppendRun(job.uid(), run);
}

void Feeds::KeepSteps(const v1::Job& job, const v1::StepsReport& report) {
  if (history_ == nullptr || report.epoch() > job.epoch()) return;
  for (v1::StepRecord step : report.steps()) {
    step.set_epoch(report.epoch());
    history_->Append(job.uid(), step);
  }
  if (IsFinal(job.state())) history_->Close(job.uid());
}

void Feeds::KeepOrphanSteps(const v1::StepsReport& report) {
  if (history_ == nullptr) return;
  history_->BringBack(report.job_uid());
  for (v1::StepRecord step : report.steps()) {
    step.set_epoch(report.epoch());
    history_->Append(report.job_uid(), step);
  }
}

bool Feeds::StepsAreSafe() const { return history_ == nullptr || history_->ok(); }

void Feeds::ForgetJob(const std::string& uid, std::span<const std::string> histories) {
  steps_.erase(uid);
  ranks_.Forget(uid);
  if (history_ == nullptr) return;
  history_->Close(uid);
  for (const std::string& gone : histories) history_->Erase(gone);
}

size_t Feeds::num_metrics_readers() const {
  size_t count = 0;
  for (const auto& [uid, steps] : steps_) count += steps.feed.num_readers();
  return count;
}

// Gives steps and evaluations of the history after `since_step` and before `before`, as of now:
// what comes later, comes live.
MetricsSubscription::Backlog Feeds::Past(const v1::Job& job, int64_t since_step,
                                         int64_t before) const {
  const History::Newest newest = history_->NewestOf(job.uid());
  before = std::min(before, newest.step + 1);
  return [history = history_, uid = job.uid(), next = since_step, before, epoch = newest.epoch,
          evals_until = job.last_eval().time_us()]() mutable {
    std::vector<MetricItem> items;
    if (next + 1 >= before) return items;
    const HistoryView view = history->Steps(uid, next, before, kPastSteps);
    auto eval = view.evals.begin();
    for (size_t row = 0; row <= view.rows.num_rows(); ++row) {
      const bool behind = row == view.rows.num_rows();
      for (; eval != view.evals.end() && (behind || eval->step() < view.rows.steps[row]); ++eval) {
        if (eval->time_us() > evals_until) continue;
        items.push_back({.step = nullptr, .eval = std::make_shared<const v1::EvalRecord>(*eval)});
      }
      if (behind || view.rows.epochs[row] > epoch) continue;
      items.push_back(
          {.step = std::make_shared<const v1::StepRecord>(view.rows.ToStep(row)), .eval = nullptr});
    }
    next = view.rows.num_rows() < kPastSteps ? before - 1 : view.rows.steps.back();
    return items;
  };
}

std::shared_ptr<MetricsSubscription> Feeds::WatchMetrics(
    const v1::Job& job, int64_t since_step, base::MonotonicTime::duration min_interval) {
  const bool ended = IsFinal(job.state());
  if (ended && !steps_.contains(job.uid())) {
    auto past = std::make_shared<MetricsSubscription>(1);
    if (history_ != nullptr) {
      past->SetBacklog(Past(job, since_step, std::numeric_limits<int64_t>::max()));
      history_->Close(job.uid());
    }
    past->Close(OkStatus());
    return past;
  }
  StepFeed& feed = StepsOf(job);
  const int64_t in_memory = feed.first_step();
  auto subscription = feed.Subscribe(since_step, min_interval, history_ == nullptr ? 0 : in_memory);
  if (history_ != nullptr && since_step + 1 < in_memory) {
    subscription->SetBacklog(Past(job, since_step, in_memory));
  }
  if (ended) feed.Close(OkStatus());
  return subscription;
}

void Feeds::UnwatchMetrics(const std::string& uid, const MetricsSubscription* subscription) {
  const auto it = steps_.find(uid);
  if (it != steps_.end()) it->second.feed.Unsubscribe(subscription);
}

std::shared_ptr<LogSubscription> Feeds::TailLogs(const LogQuery& query) {
  auto subscription = std::make_shared<LogSubscription>(control::kStreamQueue, &dropped_);
  for (const int rank : query.ranks) {
    const std::string& node = query.job.ranks(rank).node();
    const int64_t id = next_log_request_++;
    v1::CoordinatorMessage message;
    v1::LogRequest* request = message.mutable_log_request();
    request->set_request_id(id);
    request->set_job_uid(query.job.uid());
    request->set_job_name(query.job.name());
    request->set_rank(rank);
    request->set_lines(query.lines);
    request->set_follow(query.follow && !IsFinal(query.job.state()));
    request->set_trace(query.trace);
    request->set_output(query.output);
    request->set_offset(query.offset);
    if (hub_->SendAtOnce(node, message)) {
      log_requests_.emplace(id, LogRequest{subscription, node, rank});
    } else {
      subscription->Push(
          EndChunk(rank, fmt::format("node {} is not connected; {} on its disk", node,
                                     query.output          ? "the text is"
                                     : query.trace.empty() ? "its logs are"
                                                           : "the trace is")));
    }
  }
  CloseIfDone(subscription);
  return subscription;
}

void Feeds::UntailLogs(const LogSubscription* subscription) {
  for (auto it = log_requests_.begin(); it != log_requests_.end();) {
    if (it->second.subscription.get() != subscription) {
      ++it;
      continue;
    }
    v1::CoordinatorMessage message;
    message.mutable_log_cancel()->set_request_id(it->first);
    hub_->SendAtOnce(it->second.node, message);
    it = log_requests_.erase(it);
  }
}

void Feeds::OnLogReply(const std::string& node, const v1::LogReply& reply) {
  const auto it = log_requests_.find(reply.request_id());
  if (it == log_requests_.end() || it->second.node != node) return;
  auto chunk = std::make_shared<v1::LogChunk>(reply.chunk());
  chunk->set_rank(it->second.rank);
  const bool end = chunk->end();
  const auto subscription = it->second.subscription;
  subscription->Push(std::move(chunk));
  if (!end) return;
  log_requests_.erase(it);
  CloseIfDone(subscription);
}

void Feeds::OnNodeGone(const std::string& node) {
  for (auto it = log_requests_.begin(); it != log_requests_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    const auto subscription = it->second.subscription;
    subscription->Push(
        EndChunk(it->second.rank, fmt::format("the connection to node {} broke; ask again", node)));
    it = log_requests_.erase(it);
    CloseIfDone(subscription);
  }
}

void Feeds::CloseIfDone(const std::shared_ptr<LogSubscription>& subscription) {
  const bool open = std::ranges::any_of(
      log_requests_, [&](const auto& entry) { return entry.second.subscription == subscription; });
  if (!open) subscription->Close(OkStatus());
}

void Feeds::Tick() {
  const base::MonotonicTime now = clock_->Now();
  std::erase_if(steps_, [&](const auto& entry) { return now >= entry.second.drop_at; });
}

void Feeds::CloseAll(const Status& status) {
  jobs_.CloseAll(status);
  for (auto& [uid, steps] : steps_) steps.feed.Close(status);
  for (auto& [id, request] : log_requests_) request.subscription->Close(status);
  log_requests_.clear();
}

}  // namespace mt::daemon
