// The agent's one thread: tasks and timers. Everything in the agent's core runs on it, so the core
// has no locks; other threads (gRPC) only Post. Boost.Asio behind it (asio_event_loop.h), turned by
// hand in tests.
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
  // Runs the task on the loop, after what was posted before. Any thread.
  virtual void Post(Task task) = 0;
  // Runs the task once, `delay` from now. Loop thread only.
  virtual TimerId After(std::chrono::milliseconds delay, Task task) = 0;
  // After it returns the task does not run. A fired timer and kNoTimer are ignored. Loop thread
  // only.
  virtual void Cancel(TimerId timer) = 0;
};

}  // namespace mt::node
