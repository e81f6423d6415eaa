// One entry a kind: a save may go on beside an evaluation.
#include "worker/rank/activity_board.h"

#include <chrono>

#include "megatrain/v1/types.pb.h"

namespace mt::rank {
namespace {

megatrain::v1::Activity::Kind ProtoKindOf(train::ActivityKind kind) {
  using megatrain::v1::Activity;
  switch (kind) {
    case train::ActivityKind::kIndexing:
      return Activity::INDEXING;
    case train::ActivityKind::kLoading:
      return Activity::LOADING;
    case train::ActivityKind::kTuning:
      return Activity::TUNING;
    case train::ActivityKind::kFirstStep:
      return Activity::STEP;
    case train::ActivityKind::kSaving:
      return Activity::SAVING;
    case train::ActivityKind::kEvaluating:
      return Activity::EVALUATING;
    case train::ActivityKind::kScoring:
      return Activity::SCORING;
  }
  return Activity::NONE;
}

}  // namespace

void ActivityBoard::Post(const train::Activity& activity) {
  base::MutexLock lock(&mu_);
  std::optional<Entry>& entry = entries_[static_cast<size_t>(activity.kind)];
  if (!entry || entry->activity.step != activity.step) entry = Entry{activity, clock_->Now()};
  entry->activity = activity;
}

void ActivityBoard::End(train::ActivityKind kind) {
  base::MutexLock lock(&mu_);
  entries_[static_cast<size_t>(kind)].reset();
}

bool ActivityBoard::Fill(megatrain::v1::Activity* out) const {
  base::MutexLock lock(&mu_);
  const Entry* newest = nullptr;
  for (const std::optional<Entry>& entry : entries_) {
    if (entry && (newest == nullptr || entry->since >= newest->since)) newest = &*entry;
  }
  if (newest == nullptr) return false;
  const std::chrono::duration<double> seconds = clock_->Now() - newest->since;
  out->set_kind(ProtoKindOf(newest->activity.kind));
  out->set_step(newest->activity.step);
  out->set_done(newest->activity.done);
  out->set_total(newest->activity.total);
  out->set_seconds(seconds.count());
  return true;
}

}  // namespace mt::rank
