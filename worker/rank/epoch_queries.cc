// One question at a time: a save asks, and its rank waits.
#include "worker/rank/epoch_queries.h"

#include <utility>

#include "common/base/clock.h"
#include "megatrain/v1/rank.pb.h"

namespace mt::rank {

StatusOr<bool> EpochQueries::IsOpen(std::chrono::milliseconds limit) {
  const base::MonotonicTime deadline = base::Clock::Real()->Now() + limit;
  int64_t id = 0;
  {
    base::MutexLock lock(&mu_);
    id = ++newest_;
  }
  megatrain::v1::RankMessage message;
  message.mutable_epoch_query()->set_query_id(id);
  send_(std::move(message));
  base::MutexLock lock(&mu_);
  while (answered_ != id) {
    if (aborted_) return base::Error(absl::StatusCode::kAborted, "the rank was told to leave");
    if (changed_.WaitUntil(&mu_, deadline) || base::Clock::Real()->Now() < deadline) continue;
    return base::Error(absl::StatusCode::kDeadlineExceeded,
                       "the coordinator has not said within {} ms whether this epoch is open",
                       limit.count());
  }
  return open_;
}

void EpochQueries::OnAnswer(int64_t query_id, bool open) {
  base::MutexLock lock(&mu_);
  if (query_id != newest_) return;
  answered_ = query_id;
  open_ = open;
  changed_.NotifyAll();
}

void EpochQueries::Abort() {
  base::MutexLock lock(&mu_);
  aborted_ = true;
  changed_.NotifyAll();
}

}  // namespace mt::rank
