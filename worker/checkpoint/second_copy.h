// Copies a run's checkpoints to a second directory beside training (checkpoint.second), verified,
// and prunes there by the same rules. One thread; what it is given meanwhile waits, and only the
// newest of that is copied. A file in the second directory says of which directory it holds the
// copies (FORMAT.md); in one that holds anything else, or that a run saves to, nothing is written
// and nothing removed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/retention.h"

namespace mt::checkpoint {

// One try.
struct SecondCopyResult {
  CheckpointId id;
  int64_t time_us = 0;  // Unix, at its end
  int64_t bytes = 0;    // of the files that were copied
  double seconds = 0;
  Status status;
};

// In the second directory: whose copies it holds.
inline constexpr std::string_view kSecondMarkerName = ".megatrain-second";
inline constexpr int kSecondMarkerVersion = 1;
// The directory whose copies this one holds, for comparison and for messages ("another directory"
// where the marker does not say it); kNotFound: it has no marker. Blocks.
StatusOr<std::string> CopiesIn(const std::string& directory);

class SecondCopy {
 public:
  struct Args {
    std::string from, to;  // directories of checkpoints, absolute; `to` is made where it is missing
    int64_t epoch = 0;     // of the start: unfinished folders of earlier ones are removed
    std::string run{};     // id of the run, whose copies alone are pruned; empty: not known
    const base::Clock* clock = base::Clock::Real();       // outlives the object
    std::function<void(const SecondCopyResult&)> report;  // on the thread of this object
    // Waits between tries of one that failed: doubled with each failure in a row, up to a cap.
    std::chrono::milliseconds retry_first{0}, retry_cap{0};
  };
  explicit SecondCopy(Args args);
  // Gives up what is not copied: blocks for the piece of a file, or the reading back, that is under
  // way.
  ~SecondCopy();
  SecondCopy(const SecondCopy&) = delete;
  SecondCopy& operator=(const SecondCopy&) = delete;

  // A complete checkpoint, which is copied in place of what waits; then `to` is pruned by these
  // rules. One that is there already, whole and of the same content, gets the evaluation and the
  // label that the original has by now.
  void Add(const CheckpointId& id, const RetentionRules& rules);
  // Waits until nothing is left to copy, or the last one has failed once; false after `limit`.
  bool WaitIdle(std::chrono::milliseconds limit);
  // Bytes written and read back so far: rises while something moves. Any thread.
  int64_t moved_bytes() const { return moved_; }

 private:
  void Run();
  struct Wanted {
    CheckpointId id;
    RetentionRules rules;
  };
  // Blocks until one is to be copied, or for another try; false: stop.
  bool Next(Wanted* next);
  void TakeOutcome(const Wanted& tried, bool copied);
  bool IsPruned(const CheckpointId& id) const;
  // Copy without exceptions.
  StatusOr<int64_t> TryCopy(const Wanted& wanted);
  Status CheckNotSavedTo() const;
  Status Claim() const;
  StatusOr<int64_t> Copy(const Wanted& wanted);
  Status BringUpToDate(const CheckpointId& id) const;

  const Args args_;
  std::atomic<int64_t> moved_ = 0;
  std::atomic<bool> stops_ = false;
  base::Mutex mu_;
  base::CondVar changed_;
  std::optional<Wanted> wanted_ GUARDED_BY(mu_);  // not copied yet
  bool busy_ GUARDED_BY(mu_) = false;
  int failures_ GUARDED_BY(mu_) = 0;  // in a row, of wanted_
  std::chrono::steady_clock::time_point retry_at_ GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses the rest
};

}  // namespace mt::checkpoint
