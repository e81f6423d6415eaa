// A thread that sleeps for 50 ms and then calls Gloo's abortWaitSend or abortWaitRecv on the
// watched buffer.
#include "worker/comm/gloo/pulse.h"

#include <chrono>
#include <pthread.h>

#include "common/base/clock.h"

namespace mt::comm {
namespace {

constexpr std::chrono::milliseconds kPeriod{50};

}  // namespace

Pulse::Pulse() : thread_([this] { Loop(); }) {
  pthread_setname_np(thread_.native_handle(), "mt-comm-pulse");
}

Pulse::~Pulse() {
  {
    const base::MutexLock lock(&mu_);
    stop_ = true;
    stop_requested_.NotifyAll();
  }
  thread_.join();
}

void Pulse::Watch(gloo::transport::UnboundBuffer* buffer, Direction direction) {
  const base::MutexLock lock(&mu_);
  buffer_ = buffer;
  direction_ = direction;
}

void Pulse::Unwatch() {
  const base::MutexLock lock(&mu_);
  buffer_ = nullptr;
}

void Pulse::Interrupt() {
  const base::MutexLock lock(&mu_);
  InterruptLocked();
}

void Pulse::InterruptLocked() {
  if (buffer_ == nullptr) return;
  if (direction_ == Direction::kSend) {
    buffer_->abortWaitSend();
  } else {
    buffer_->abortWaitRecv();
  }
}

void Pulse::Loop() {
  const base::MutexLock lock(&mu_);
  while (!stop_) {
    stop_requested_.WaitUntil(&mu_, base::Clock::Real()->Now() + kPeriod);
    InterruptLocked();
  }
}

}  // namespace mt::comm
