// Delivers SIGTERM and SIGINT as calls on an ordinary thread, where any function may be called,
// unlike in a signal handler.
#pragma once

#include <functional>
#include <thread>

namespace mt::rank {

// Blocks the two signals in the calling thread and all threads it starts. Call first in main.
void BlockStopSignals();

class StopSignals {
 public:
  // `on_signal` is called on the object's thread with the number of signals so far, from 1 on.
  // BlockStopSignals must have been called.
  explicit StopSignals(std::function<void(int count)> on_signal);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  std::jthread thread_;  // checks its stop token every 100 ms
};

}  // namespace mt::rank
