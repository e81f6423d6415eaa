// Ctrl-C while mtctl waits: only the waiting ends; the job or operation goes on. Within a scope
// SIGINT sets a flag and ends the given stream or wait instead of the program. At most one scope
// exists at a time.
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace mt::client {

class StreamStopper;

// Installs the handler of SIGINT for its lifetime and restores the previous one.
class InterruptScope {
 public:
  // Stops `stopper` (may be null; borrowed) shortly after a Ctrl-C, from a thread of its own.
  explicit InterruptScope(StreamStopper* stopper = nullptr);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // True where SIGINT has arrived since this scope began.
  static bool Interrupted();

 private:
  void Watch();

  StreamStopper* const stopper_;
  struct sigaction old_ {};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace mt::client
