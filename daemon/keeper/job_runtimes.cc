// Begins runtimes: the time of submission is carried over from the wall clock once.
#include "daemon/keeper/job_runtimes.h"

#include <algorithm>

#include "megatrain/v1/types.pb.h"

namespace mt::daemon {

JobRuntime& JobRuntimes::Of(const v1::Job& job) {
  const auto [it, is_new] = runtimes_.try_emplace(job.uid());
  if (is_new) {
    const int64_t age_us = ledger_->NowMicros() - job.created_us();
    it->second.born = clock_->Now() - std::chrono::microseconds(std::max<int64_t>(0, age_us));
  }
  return it->second;
}

base::MonotonicTime JobRuntimes::RetryAt(const std::string& uid) const {
  const auto it = runtimes_.find(uid);
  return it == runtimes_.end() ? base::MonotonicTime{} : it->second.retry_at;
}

}  // namespace mt::daemon
