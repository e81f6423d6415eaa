// What the run is busy with, from the threads that do it to the thread that sends beats.
// Thread-safe.
#pragma once

#include <array>
#include <optional>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "worker/train/records.h"

namespace megatrain::v1 {
class Activity;
}

namespace mt::rank {

class ActivityBoard {
 public:
  // The clock outlives the board.
  explicit ActivityBoard(const base::Clock* clock = base::Clock::Real()) : clock_(clock) {}

  // Begins an activity, or moves it on.
  void Post(const train::Activity& activity);
  void End(train::ActivityKind kind);
  // Fills in the one that began last; false, leaving `out` unchanged, where there is none.
  bool Fill(megatrain::v1::Activity* out) const;

 private:
  struct Entry {
    train::Activity activity;
    base::MonotonicTime since;
  };

  const base::Clock* const clock_;
  mutable base::Mutex mu_;
  std::array<std::optional<Entry>, train::kNumActivityKinds> entries_ GUARDED_BY(mu_);
};

}  // namespace mt::rank
