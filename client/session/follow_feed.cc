// Each stream is opened again where it broke; the metrics go on behind the last step that came.
#include "client/session/follow_feed.h"

#include <utility>

#include "client/output/activity_text.h"
#include "client/output/format.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kConnectAgain{500};

}  // namespace

FollowFeed::FollowFeed(const GlobalOptions& options, std::string job_uid, int64_t since_step)
    : options_(options),
      job_uid_(std::move(job_uid)),
      metrics_(std::make_shared<v1::MetricsChunk>()),
      last_step_(since_step) {}

void FollowFeed::TakeJob(const v1::Job& job) {
  base::MutexLock lock(&mu_);
  const bool same = job_ != nullptr && SameActivity(job_->activity(), job.activity());
  if (!same) activity_at_ = steady_clock::now();
  job_ = std::make_shared<v1::Job>(job);
  lost_since_ = {};
}

void FollowFeed::TakeMetrics(const v1::MetricsChunk& chunk) {
  base::MutexLock lock(&mu_);
  for (const v1::StepRecord& step : chunk.steps()) last_step_ = step.step();
  metrics_->MergeFrom(chunk);
}

void FollowFeed::RunWatch() {
  Run(&watch_stopper_, [this](const Api& api) {
    return api.Watch(MakeJobRequest(options_, job_uid_), &watch_stopper_,
                     [this](const v1::Job& job) {
                       TakeJob(job);
                       return !HasEnded(job);
                     });
  });
}

void FollowFeed::RunMetrics() {
  Run(&metrics_stopper_, [this](const Api& api) {
    v1::StreamMetricsRequest request;
    request.mutable_job()->set_uid(job_uid_);
    {
      base::MutexLock lock(&mu_);
      request.set_since_step(last_step_);
    }
    return api.StreamMetrics(request, &metrics_stopper_, [this](const v1::MetricsChunk& chunk) {
      TakeMetrics(chunk);
      return true;
    });
  });
}

FollowFeed::News FollowFeed::Take() {
  base::MutexLock lock(&mu_);
  News news{.job = job_,
            .metrics = std::make_shared<v1::MetricsChunk>(),
            .activity_at = activity_at_,
            .error = error_};
  // Nothing is shown of a job that is not known yet: its metrics wait for it.
  if (job_ != nullptr) news.metrics = std::exchange(metrics_, std::make_shared<v1::MetricsChunk>());
  if (lost_since_ != steady_clock::time_point()) news.lost = steady_clock::now() - lost_since_;
  return news;
}

void FollowFeed::Stop() {
  {
    base::MutexLock lock(&mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  watch_stopper_.Stop();
  metrics_stopper_.Stop();
}

void FollowFeed::Run(StreamStopper* stopper, const std::function<Status(const Api&)>& stream) {
  GlobalOptions shown = options_;
  shown.output = OutputFormat::kTable;  // whatever the verb prints, this goes to people
  while (!stopper->stopped()) {
    auto api = ConnectApi(shown);
    const Status status = api.ok() ? stream(**api) : api.status();
    if (status.ok() || stopper->stopped()) return;
    base::MutexLock lock(&mu_);
    const bool transient = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                           absl::IsResourceExhausted(status) || absl::IsCancelled(status);
    if (!transient) {
      if (error_.ok()) error_ = status;
      return;
    }
    if (lost_since_ == steady_clock::time_point()) lost_since_ = steady_clock::now();
    const auto until = steady_clock::now() + kConnectAgain;
    while (!stopping_ && wake_.WaitUntil(&mu_, until)) {
    }
  }
}

}  // namespace mt::client
