// SIGTERM and SIGINT as calls on a thread of their own, where anything may be done.
#pragma once

#include <functional>
#include <thread>

namespace mt::rank {

// Blocks the two signals in this thread and those it starts. First thing in main.
void BlockStopSignals();

class StopSignals {
 public:
  // `on_signal` gets the number of signals so far, from 1. BlockStopSignals was called.
  explicit StopSignals(std::function<void(int count)> on_signal);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  std::jthread thread_;  // ends when asked: it looks every 100 ms
};

}  // namespace mt::rank
