// Ctrl-C while mtctl waits: what it waits for goes on, only mtctl ends. Within a scope SIGINT sets
// a flag and ends the streams and waits that were named, instead of the program. One scope at a
// time.
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

namespace mt::client {

class StreamStopper;

class InterruptScope {
 public:
  // Stops `stopper` (may be null; borrowed) soon after a Ctrl-C, from a thread of its own.
  explicit InterruptScope(StreamStopper* stopper = nullptr);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Since this scope began.
  static bool Interrupted();

 private:
  void Watch();

  StreamStopper* const stopper_;
  struct sigaction old_ {};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace mt::client
