// A copy in host memory of the state that this rank saves: masters and moments of its own slices
// (worker/params), as they are at the end of one step. It is made while the next step computes,
// which only reads them; the update of that step waits for the copy. Source:
// docs/design/gpu-engine.md#one-step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/core/device.h"
#include "worker/params/param_store.h"

namespace mt::engine {

// Begin, AwaitCopied and At belong to the engine's thread; Copy to the thread that saves. One copy
// at a time.
class StateSnapshot {
 public:
  // Bytes of the memory that a copy of this store's state takes. The store need not be bound yet.
  static int64_t BytesOf(const params::ParamStore& store);

  // `memory`: BytesOf bytes, pinned where the device is a GPU, not owned. Device and store, which
  // is bound, outlive the object.
  StateSnapshot(kernels::Device* device, const params::ParamStore* store, void* memory);
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  // The state to copy is that after all work enqueued on `stream` so far. Copy must follow, on
  // whatever thread.
  void Begin(kernels::Stream& stream) LOCKS_EXCLUDED(mu_);
  // Copies, and returns when all bytes are in host memory. Throws what the device throws; the
  // engine does not wait for a copy that has failed.
  void Copy() LOCKS_EXCLUDED(mu_);

  // True from Begin until AwaitCopied.
  bool pending() const { return pending_; }
  // Call before the state changes: work enqueued on `stream` from now on runs after the copy. The
  // host waits until the copies are enqueued (on the CPU: done).
  void AwaitCopied(kernels::Stream& stream) LOCKS_EXCLUDED(mu_);

  // Where a byte of the state lies in the copy. CHECKs that it is in one of this rank's slices.
  const void* At(const void* state) const;

 private:
  // Bytes that are contiguous in the store's memory and in the copy.
  struct Region {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };

  void Enqueued() LOCKS_EXCLUDED(mu_);

  kernels::Device* const device_;
  std::vector<Region> regions_;  // by `from`, ascending
  const std::unique_ptr<kernels::Stream> stream_;
  const std::unique_ptr<kernels::Event> state_;   // the state is there
  const std::unique_ptr<kernels::Event> copied_;  // the copy is complete
  bool pending_ = false;
  base::Mutex mu_;
  base::CondVar changed_;
  bool enqueued_ GUARDED_BY(mu_) = true;
};

}  // namespace mt::engine
