// What the coordinator streams of one job, across its restarts: two threads read the streams of the
// job and of its metrics, and a third takes what is new. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "client/session/session.h"
#include "common/base/mutex.h"

namespace mt::client {

class FollowFeed {
 public:
  // Steps up to `since_step` are left out.
  FollowFeed(const GlobalOptions& options, std::string job_uid, int64_t since_step);

  // The bodies of the two threads. They run until Stop and connect again after failures.
  void RunWatch();
  void RunMetrics();

  struct News {
    std::shared_ptr<const v1::Job> job;                   // as it is now; null: none received yet
    std::shared_ptr<const v1::MetricsChunk> metrics;      // since the last Take; none without `job`
    std::chrono::steady_clock::time_point activity_at{};  // when the job's activity was reported
    // Time since the coordinator was reached last; 0: connected.
    std::chrono::steady_clock::duration lost{};
    Status error;  // a failure that connecting again cannot cure
  };
  News Take();
  // Ends both threads' streams.
  void Stop();

 private:
  void Run(StreamStopper* stopper, const std::function<Status(const Api&)>& stream);
  void TakeJob(const v1::Job& job);
  void TakeMetrics(const v1::MetricsChunk& chunk);

  const GlobalOptions options_;
  const std::string job_uid_;
  StreamStopper watch_stopper_, metrics_stopper_;
  base::Mutex mu_;
  base::CondVar wake_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::shared_ptr<const v1::Job> job_ GUARDED_BY(mu_);
  std::shared_ptr<v1::MetricsChunk> metrics_ GUARDED_BY(mu_);
  int64_t last_step_ GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point activity_at_ GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point lost_since_ GUARDED_BY(mu_);
  Status error_ GUARDED_BY(mu_);
};

}  // namespace mt::client
