// The end of waits: stores that let go of whatever waits for words of memory on a device. Streams
// of their own, one pair for all groups and links of a rank: a GPU has few hardware queues, and a
// stream that shares one with another waits with it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/base/mutex.h"
#include "kernels/core/device.h"

namespace mt::comm {

// Thread-safe. Throws DeviceError where the device has failed.
class Rescue {
 public:
  struct Store {
    uint32_t* word = nullptr;
    uint32_t value = 0;
  };

  // The device must outlive it.
  explicit Rescue(kernels::Device* device);

  // At once: behind nothing that waits.
  void StoreNow(std::span<const Store> stores) LOCKS_EXCLUDED(mu_);
  // Behind what `event` was recorded behind, and behind earlier calls of this.
  void StoreBehind(kernels::Event& event, std::span<const Store> stores) LOCKS_EXCLUDED(mu_);
  // Copies to the host, at once; blocks for some microseconds.
  void Read(std::span<uint32_t> to, const uint32_t* words) LOCKS_EXCLUDED(mu_);

 private:
  kernels::Device* const device_;
  base::Mutex mu_;
  const std::unique_ptr<kernels::Stream> now_;     // waits for no other
  const std::unique_ptr<kernels::Stream> behind_;  // waits for events
};

}  // namespace mt::comm
