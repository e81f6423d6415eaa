// EventLoop on a Boost.Asio io_context, with signals and descriptors as further events. The thread
// that calls Run is the loop thread.
#pragma once

#include <functional>
#include <memory>

#include "common/base/files.h"
#include "worker/node/loop/event_loop.h"

namespace mt::node {

class AsioEventLoop final : public EventLoop {
 public:
  AsioEventLoop();
  ~AsioEventLoop() override;

  void Post(Task task) override;
  TimerId After(std::chrono::milliseconds delay, Task task) override;
  void Cancel(TimerId timer) override;

  // Calls `task` on the loop each time the process gets the signal. Before Run or on the loop.
  void OnSignal(int signal_number, std::function<void()> task);
  // Calls `task` on the loop once, when the descriptor becomes readable, and closes it. Before Run
  // or on the loop.
  void OnReadable(base::Fd fd, std::function<void()> task);
  // Runs the loop until Stop; tasks left over are dropped.
  void Run();
  // Makes Run return. Any thread.
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mt::node
