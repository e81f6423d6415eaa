// The rank's position on its device (the newest mark that the device has reached), for threads
// other than the trainer's: beats, and the log of a rank that is told to end. Reading it looks at
// memory that the device writes and makes no CUDA call. Thread-safe; a reader can delay only the
// end of the run.
#pragma once

#include <string>

#include "common/base/mutex.h"
#include "worker/train/trainer.h"

namespace megatrain::v1 {
class DeviceMark;
}

namespace mt::rank {

class MarkBoard {
 public:
  // Sets the trainer to ask; nullptr before it is destroyed, which waits for readers.
  void SetTrainer(const train::Trainer* trainer);
  // Fills in the mark; false, leaving `out` unchanged, without a trainer.
  bool Fill(megatrain::v1::DeviceMark* out) const;
  // Trainer::LastMicrobatch; 0 without a trainer.
  int Microbatch() const;
  // Trainer::LastMark as text, or "not in a step" without a trainer.
  std::string Text() const;

 private:
  mutable base::Mutex mu_;
  const train::Trainer* trainer_ GUARDED_BY(mu_) = nullptr;
};

}  // namespace mt::rank
