// Asks the coordinator, through the agent, whether this rank's epoch is still open. Question and
// answer may be lost with a stream; then the question has no answer in time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace megatrain::v1 {
class RankMessage;
}

namespace mt::rank {

// Thread-safe.
class EpochQueries {
 public:
  using Send = std::function<void(megatrain::v1::RankMessage)>;
  explicit EpochQueries(Send send) : send_(std::move(send)) {}

  // Blocks until the answer comes. kDeadlineExceeded: none within `limit`; kAborted after Abort.
  StatusOr<bool> IsOpen(std::chrono::milliseconds limit);

  // Called when the agent delivers an answer; one to another question than the newest is ignored.
  void OnAnswer(int64_t query_id, bool open);
  // Ends all waits, current and future ones.
  void Abort();

 private:
  const Send send_;
  base::Mutex mu_;
  base::CondVar changed_;
  int64_t newest_ GUARDED_BY(mu_) = 0;    // id of the newest question
  int64_t answered_ GUARDED_BY(mu_) = 0;  // id of the newest one that was answered
  bool open_ GUARDED_BY(mu_) = false;     // that answer
  bool aborted_ GUARDED_BY(mu_) = false;
};

}  // namespace mt::rank
