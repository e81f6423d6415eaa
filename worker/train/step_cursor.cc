// Every move checks the one inequality that it could break.
#include "worker/train/step_cursor.h"

#include "common/base/check.h"

namespace mt::train {

int64_t StepCursor::Enqueue() {
  CHECK_LT(last_, acted_ + kLag) << "the command bits of an earlier step have not acted";
  return ++last_;
}

int64_t StepCursor::Count() {
  CHECK_LT(counted_, last_) << "no step is left to count";
  return ++counted_;
}

int64_t StepCursor::Read() {
  CHECK_LT(read_, counted_) << "a step is read once its times are known";
  return ++read_;
}

int64_t StepCursor::Act() {
  CHECK_LT(acted_, read_) << "a step acts once its outcome is known";
  return ++acted_;
}

}  // namespace mt::train
