// The core's own thread: it runs the tasks that handlers post, commits after each batch, and ticks
// the core's timers. Post is thread-safe; everything else about the core happens on this thread.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "daemon/core/core.h"

namespace mt::daemon {

class CoreLoop {
 public:
  // Starts the thread. `on_failure` is called once, on the loop's thread, when the store fails;
  // every later call is answered with that error. `on_turn` is called on the loop's thread after
  // each successful turn, at least every 100 ms while the loop is not blocked. `core` is borrowed.
  CoreLoop(Core* core, std::function<void(const Status&)> on_failure,
           std::function<void(Core&)> on_turn = nullptr);
  ~CoreLoop();  // Stop

  using Task = std::function<void(Core& core)>;
  // Runs the task soon, in the order of posting. After Stop it is dropped.
  void Post(Task task);
  // Runs what has been posted, then joins the thread. Called by one thread.
  void Stop();

 private:
  void Run();
  // Waits for tasks or the next tick. Returns false when the loop is to end.
  bool WaitForTasks(std::vector<Task>* tasks);

  Core* core_;
  std::function<void(const Status&)> on_failure_;
  std::function<void(Core&)> on_turn_;
  base::Mutex mu_;
  base::CondVar wake_;
  std::vector<Task> tasks_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last, since it uses all members above
};

}  // namespace mt::daemon
