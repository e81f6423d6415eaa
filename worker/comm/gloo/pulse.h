// Ends a wait on a Gloo buffer now and then. Gloo 0.5 waits until the operation is done, its own
// time-out (which closes every connection of the context) or an interruption from another thread;
// this is that other thread, so that a waiting rank can look at its deadline, at an abort and at
// its peer's connection.
#pragma once

#include <thread>

#include <gloo/transport/unbound_buffer.h>

#include "common/base/mutex.h"

namespace mt::comm {

enum class Direction { kSend, kRecv };

// One thread waits and watches; Interrupt() is any thread's.
class Pulse {
 public:
  Pulse();
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // From Watch to Unwatch every wait on the buffer returns false within 50 ms. An interruption may
  // come late, so that the next wait on the buffer returns false at once.
  void Watch(gloo::transport::UnboundBuffer* buffer, Direction direction);
  void Unwatch();
  // Ends the watched wait now, if there is one.
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
