// Begins runtimes: the time of submission is carried over from the wall clock once.
#include "daemon/keeper/job_runtimes.h"

#include <algorithm>

#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

JobRuntime& JobRuntimes::Of(const v1::Job& job) {
  const auto [it, is_new] = runtimes_.try_emplace(job.uid());
  if (is_new) {
    const v1::StoredJob* stored = ledger_->FindJob(job.uid());
    const int64_t uncounted_us = stored == nullptr ? 0 : stored->uncounted_us();
    const int64_t age_us = base::ToUnixMicros(clock_->WallNow()) - job.created_us() - uncounted_us;
    it->second.born = clock_->Now() - std::chrono::microseconds(std::max<int64_t>(0, age_us));
  }
  return it->second;
}

base::MonotonicTime JobRuntimes::RetryAt(const std::string& uid) const {
  const auto it = runtimes_.find(uid);
  return it == runtimes_.end() ? base::MonotonicTime{} : it->second.retry_at;
}

}  // namespace mt::daemon
