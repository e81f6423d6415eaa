// Looks under the lock: they are short, since they ask and never wait.
#include "worker/comm/device_watch.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>

#include "common/base/log.h"

namespace mt::comm {
namespace {

constexpr std::chrono::milliseconds kEvery{100};

}  // namespace

DeviceWatch::DeviceWatch(kernels::Device* device, bool looks) : device_(device), rescue_(device) {
  if (!looks) return;
  thread_ = std::thread([this] { Run(); });
  ::pthread_setname_np(thread_.native_handle(), "mt-comm-watch");
}

DeviceWatch::~DeviceWatch() {
  {
    base::MutexLock lock(&mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::Add(Watched* watched) {
  base::MutexLock lock(&mu_);
  all_.push_back(watched);
}

void DeviceWatch::Remove(Watched* watched) {
  base::MutexLock lock(&mu_);
  std::erase(all_, watched);
}

// A device that has failed throws from every question; the training thread meets that error by
// itself.
void DeviceWatch::Run() {
  try {
    device_->BindThread();
    base::MutexLock lock(&mu_);
    while (!stop_) {
      const base::MonotonicTime now = base::Clock::Real()->Now();
      for (Watched* watched : all_) watched->Look(now);
      changed_.WaitUntil(&mu_, now + kEvery);
    }
  } catch (const kernels::DeviceError& error) {
    log::Warn("communication is watched no longer", {{"why", error.what()}});
  }
}

}  // namespace mt::comm
