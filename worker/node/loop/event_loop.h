// The event loop of the agent: tasks and timers on one thread. The whole core of the agent runs on
// it, so the core has no locks; other threads (gRPC) only Post. Implemented on Boost.Asio
// (asio_event_loop.h), and by a loop that tests turn by hand.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace mt::node {

class EventLoop {
 public:
  using Task = std::function<void()>;
  using TimerId = uint64_t;
  static constexpr TimerId kNoTimer = 0;

  virtual ~EventLoop() = default;
  // Runs the task on the loop, after those posted before. Any thread.
  virtual void Post(Task task) = 0;
  // Runs the task once, after `delay`. Loop thread only.
  virtual TimerId After(std::chrono::milliseconds delay, Task task) = 0;
  // The task does not run any more once this returns. Ignores kNoTimer and timers that have fired.
  // Loop thread only.
  virtual void Cancel(TimerId timer) = 0;
};

}  // namespace mt::node
