// The core's own thread: runs what handlers post to it, commits after each batch, ticks the clock.
// Post is thread-safe; all else about the core happens on this thread.
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
  // `on_failure` is called once, on the loop's thread, when the store fails; the loop then answers
  // every call with that error.
  // `on_turn` is called after each turn, on the loop's thread: at least every 100 ms while it
  // works.
  CoreLoop(Core* core, std::function<void(const Status&)> on_failure,
           std::function<void(Core&)> on_turn = nullptr);
  ~CoreLoop();  // Stop

  using Task = std::function<void(Core& core)>;
  // Runs soon, in the order of posting. After Stop it is dropped.
  void Post(Task task);
  // Runs what was posted, then ends the thread. Called by one thread.
  void Stop();

 private:
  void Run();
  // False: stop.
  bool WaitForTasks(std::vector<Task>* tasks);

  Core* core_;
  std::function<void(const Status&)> on_failure_;
  std::function<void(Core&)> on_turn_;
  base::Mutex mu_;
  base::CondVar wake_;
  std::vector<Task> tasks_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace mt::daemon
