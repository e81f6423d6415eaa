// Where the rank's device stands, for whoever asks while the trainer lives: the beats, and the log
// of a rank that is told to end. Costs a look at memory that the device writes, no call of it.
// Thread-safe; asking makes only the end of the run wait.
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
  // nullptr: there is none (any more).
  void SetTrainer(const train::Trainer* trainer);
  // False, and nothing filled in, without a trainer.
  bool Fill(megatrain::v1::DeviceMark* out) const;
  // Trainer::LastMark; "not in a step" without a trainer.
  std::string Text() const;

 private:
  mutable base::Mutex mu_;
  const train::Trainer* trainer_ GUARDED_BY(mu_) = nullptr;
};

}  // namespace mt::rank
