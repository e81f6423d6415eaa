// Looks after what NCCL does not: that enqueued calls come to an end, and errors that show after a
// call has returned. One thread for all groups of a rank.
#pragma once

#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "kernels/core/device.h"
#include "worker/comm/rescue.h"

namespace mt::comm {

// Thread-safe.
class DeviceWatch {
 public:
  // What is watched: Look is called about ten times a second, by the watch's thread, between Add
  // and Remove.
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual void Look(base::MonotonicTime now) = 0;
  };

  // The device must outlive the watch; it is current for the watch's thread. `looks` false: there
  // is no thread, and whoever watches calls Look.
  explicit DeviceWatch(kernels::Device* device, bool looks = true);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  void Add(Watched* watched) LOCKS_EXCLUDED(mu_);
  // Blocks while a look at it is under way.
  void Remove(Watched* watched) LOCKS_EXCLUDED(mu_);
  // Ends the waits of what is watched.
  Rescue& rescue() { return rescue_; }

 private:
  void Run();

  kernels::Device* const device_;
  Rescue rescue_;
  base::Mutex mu_;
  base::CondVar changed_;
  std::vector<Watched*> all_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace mt::comm
