// Interrupts waits on Gloo buffers periodically. A wait in Gloo 0.5 ends when the operation is
// complete, at its own timeout (which closes every connection of the context) or when another
// thread interrupts it. This is that thread; it lets a waiting rank check its deadline, an abort
// and the state of its peers.
#pragma once

#include <thread>

#include <gloo/transport/unbound_buffer.h>

#include "common/base/mutex.h"

namespace mt::comm {

enum class Direction { kSend, kRecv };

// Watch and Unwatch are called by the one thread that waits; Interrupt() by any.
class Pulse {
 public:
  Pulse();
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // Between Watch and Unwatch every wait on the buffer returns false within 50 ms. An interruption
  // may come late, in which case the next wait on the buffer returns false at once.
  void Watch(gloo::transport::UnboundBuffer* buffer, Direction direction);
  void Unwatch();
  // Interrupts the watched wait now, if there is one.
  void Interrupt();

 private:
  void Loop();
  void InterruptLocked() EXCLUSIVE_LOCKS_REQUIRED(mu_);

  base::Mutex mu_;
  base::CondVar stop_requested_;
  bool stop_ GUARDED_BY(mu_) = false;
  gloo::transport::UnboundBuffer* buffer_ GUARDED_BY(mu_) = nullptr;
  Direction direction_ GUARDED_BY(mu_) = Direction::kSend;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace mt::comm
