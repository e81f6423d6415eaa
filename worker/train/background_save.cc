// The thread copies first, so that the training thread waits for nothing else.
#include "worker/train/background_save.h"

#include <pthread.h>
#include <utility>

#include "common/base/check.h"
#include "worker/failure/failure.h"

namespace mt::train {
namespace {

// One digests and writes about 1.8 GB/s.
constexpr int kThreadsBesideGpu = 4;

SaveOutcome CopyAndSave(BackgroundSave::Order* order) {
  SaveOutcome outcome{.saved = base::Internal("not saved"), .pruned = std::vector<std::string>()};
  try {
    if (order->save.failpoint) order->save.ready = order->save.failpoint("copy");
    order->snapshot->Copy();
  } catch (...) {
    // The save goes on to its first agreement, so that no rank waits for this one.
    order->save.ready = failure::StatusOfException();
  }
  try {
    outcome.saved = checkpoint::SaveCheckpoint(order->save);
    if (outcome.saved.ok() && order->prune) outcome.pruned = order->prune();
  } catch (...) {
    outcome.saved = failure::StatusOfException();
  }
  return outcome;
}

}  // namespace

BackgroundSave::BackgroundSave(kernels::Device* device, comm::ProcessGroup* group)
    : group_(group),
      // On CPU slots every core computes.
      threads_(device->kind() == kernels::DeviceKind::kCpu ? 1 : kThreadsBesideGpu),
      stream_(device->CreateStream(kernels::StreamPriority::kLow)) {}

BackgroundSave::~BackgroundSave() {
  if (under_way()) thread_.join();
}

void BackgroundSave::Begin(Order order) {
  CHECK(!under_way());
  for (checkpoint::SliceToSave& slice : order.save.slices)
    slice.data = order.snapshot->At(slice.data);
  order.save.group = group_;
  order.save.stream = stream_.get();
  order.save.threads = threads_;
  order.snapshot->Begin(*order.computes);
  ended_ = false;
  thread_ = std::thread([this, taken = std::move(order)]() mutable { Run(std::move(taken)); });
}

void BackgroundSave::Run(Order order) {
  ::pthread_setname_np(::pthread_self(), "mt-save");
  outcome_ = CopyAndSave(&order);
  ended_ = true;
  if (order.save.failpoint) (void)order.save.failpoint("over");
}

SaveOutcome BackgroundSave::Finish() {
  CHECK(under_way());
  thread_.join();
  CHECK(outcome_.has_value());
  SaveOutcome outcome = *std::move(outcome_);
  outcome_.reset();
  ended_ = false;
  return outcome;
}

}  // namespace mt::train
