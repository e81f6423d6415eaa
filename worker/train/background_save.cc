// The thread copies first, so that the training thread waits for nothing else.
#include "worker/train/background_save.h"

#include <chrono>
#include <ctime>
#include <pthread.h>
#include <utility>

#include "common/base/check.h"
#include "worker/failure/failure.h"

namespace mt::train {
namespace {

// One digests and writes about 1.8 GB/s.
constexpr int kThreadsBesideGpu = 4;

// CPU time of the calling thread.
std::chrono::nanoseconds CpuTime() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// A save whose thread takes its time from threads that compute rests after a turn of work so many
// times as long: a step, which waits for the slowest of its threads, is held up by no more than
// this share. A niceness did not do that (docs/benchmarks.md#on-cpu-slots).
constexpr std::chrono::milliseconds kTurn{2};
constexpr int kRests = 40;

void CopyState(BackgroundSave::Order* order) {
  try {
    if (order->save.failpoint) order->save.ready = order->save.failpoint("copy");
    order->snapshot->Copy();
  } catch (...) {
    // The save goes on to its first agreement, so that no rank waits for this one.
    order->save.ready = failure::StatusOfException();
  }
}

SaveOutcome Save(const BackgroundSave::Order& order) {
  SaveOutcome outcome{.saved = base::Internal("not saved"), .pruned = std::vector<std::string>()};
  try {
    outcome.saved = checkpoint::SaveCheckpoint(order.save);
    if (outcome.saved.ok() && order.prune) outcome.pruned = order.prune();
  } catch (...) {
    outcome.saved = failure::StatusOfException();
  }
  return outcome;
}

}  // namespace

BackgroundSave::BackgroundSave(kernels::Device* device, comm::ProcessGroup* group)
    : group_(group),
      // On CPU slots every core computes.
      computes_here_(device->kind() == kernels::DeviceKind::kCpu),
      stream_(device->CreateStream(kernels::StreamPriority::kLow)) {}

BackgroundSave::~BackgroundSave() {
  if (under_way()) Join();
}

void BackgroundSave::Join() {
  {
    base::MutexLock lock(&mu_);
    awaited_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

// On the thread that saves, as it has written something.
void BackgroundSave::Rest() {
  const std::chrono::nanoseconds turn = CpuTime() - worked_;
  if (turn < kTurn) return;
  const auto until = std::chrono::steady_clock::now() + kRests * turn;
  {
    base::MutexLock lock(&mu_);
    while (!awaited_ && changed_.WaitUntil(&mu_, until)) {
    }
  }
  worked_ = CpuTime();
}

void BackgroundSave::Begin(Order order) {
  CHECK(!under_way());
  for (checkpoint::SliceToSave& slice : order.save.slices)
    slice.data = order.snapshot->At(slice.data);
  order.save.group = group_;
  order.save.stream = stream_.get();
  order.save.threads = computes_here_ ? 1 : kThreadsBesideGpu;
  if (computes_here_ && order.rests) {
    order.save.progress = [this, told = order.save.progress](int64_t bytes) {
      if (told) told(bytes);
      Rest();
    };
  }
  order.snapshot->Begin(*order.computes);
  ended_ = false;
  {
    base::MutexLock lock(&mu_);
    awaited_ = false;
  }
  thread_ = std::thread([this, taken = std::move(order)]() mutable { Run(std::move(taken)); });
}

void BackgroundSave::Run(Order order) {
  ::pthread_setname_np(::pthread_self(), "mt-save");
  CopyState(&order);
  // The copy is short, and training waits for it at its next update: nothing rests for it.
  worked_ = CpuTime();
  outcome_ = Save(order);
  ended_ = true;
  if (order.save.failpoint) (void)order.save.failpoint("over");
}

SaveOutcome BackgroundSave::Finish() {
  CHECK(under_way());
  Join();
  CHECK(outcome_.has_value());
  SaveOutcome outcome = *std::move(outcome_);
  outcome_.reset();
  ended_ = false;
  return outcome;
}

}  // namespace mt::train
