// Slots are pinned host memory, so that the copies at the end of a step do not wait.
#include "worker/engine/step_ring.h"

#include <new>

#include "common/base/check.h"

namespace mt::engine {

StepRing::StepRing(kernels::Device* device) : device_(device) {
  for (Slot& slot : slots_) {
    slot.done = device_->CreateEvent();
    slot.pinned = device_->Allocate(sizeof(PinnedBlock), kernels::MemoryKind::kPinnedHost);
    new (slot.pinned->data()) PinnedBlock();
  }
}

void StepRing::Begin(int64_t step) {
  CHECK(step >= 0);
  Slot& s = slot(step);
  s.done->Synchronize();
  s.step = step;
  *Pinned(s) = {};
  open_step_ = step;
}

StepRing::HostValues* StepRing::host_values() { return &Pinned(slot(open_step_))->host_values; }

void StepRing::End(kernels::Stream& stream, const StepVector* vector,
                   const kernels::StepScalars* scalars) {
  Slot& s = slot(open_step_);
  StepOutcome* outcome = &Pinned(s)->outcome;
  device_->Copy(stream, &outcome->vector, vector, sizeof(*vector));
  device_->Copy(stream, &outcome->scalars, scalars, sizeof(*scalars));
  s.done->Record(stream);
}

StepOutcome StepRing::Read(int64_t step) {
  Slot& s = slot(step);
  CHECK_EQ(s.step, step) << "the ring holds the last " << kSteps << " steps";
  s.done->Synchronize();
  return Pinned(s)->outcome;
}

bool StepRing::IsDone(int64_t step) {
  Slot& s = slot(step);
  CHECK_EQ(s.step, step) << "the ring holds the last " << kSteps << " steps";
  return s.done->IsDone();
}

}  // namespace mt::engine
