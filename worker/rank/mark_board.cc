// The lock is held while the trainer is asked, which keeps it alive.
#include "worker/rank/mark_board.h"

#include "megatrain/v1/rank.pb.h"

namespace mt::rank {

void MarkBoard::SetTrainer(const train::Trainer* trainer) {
  base::MutexLock lock(&mu_);
  trainer_ = trainer;
}

bool MarkBoard::Fill(megatrain::v1::DeviceMark* out) const {
  base::MutexLock lock(&mu_);
  if (trainer_ == nullptr) return false;
  out->set_text(trainer_->LastMark());
  out->set_phase(std::string(trainer_->LastPhase()));
  return true;
}

int MarkBoard::Microbatch() const {
  base::MutexLock lock(&mu_);
  return trainer_ == nullptr ? 0 : trainer_->LastMicrobatch();
}

std::string MarkBoard::Text() const {
  base::MutexLock lock(&mu_);
  return trainer_ == nullptr ? "not in a step" : trainer_->LastMark();
}

}  // namespace mt::rank
